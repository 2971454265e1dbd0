"""Words and numbers of a release statement: visible text, odds rounded towards privacy, descriptions of mechanisms."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction

from label_dp.channels.base import Channel
from label_dp.channels.knots import KnotsChannel
from label_dp.channels.laplace import LaplaceChannel
from label_dp.channels.lattice import LatticeChannel
from label_dp.channels.noise import NoiseChannel
from label_dp.channels.one_bit import OneBitChannel
from label_dp.channels.rr import RRChannel
from label_dp.channels.subsets import SubsetChannel
from label_dp.channels.top_labels import TopLabelsChannel
from label_dp.numbers import rounded_up
from label_dp.privacy import Epsilon

SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
PRIOR_ODDS = ((Fraction(1), "50 : 50"), (Fraction(1, 9), "1 : 9"), (Fraction(1, 99), "1 : 99"))


def visible(value: object) -> str:
    """Escape untrusted text: nothing in it is invisible or reorders text."""
    return "".join(c if c.isprintable() else f"[U+{ord(c):04X}]" for c in str(value))


def count(many: int, what: str) -> str:
    """Format a count with its noun, in the plural if need be."""
    return f"{many:,} {what}{'' if many == 1 else 's'}"


def number(value: float) -> str:
    """Format at most six significant digits, with a real minus sign and separated thousands."""
    text = f"{value:,.6g}" if abs(value) < 1e15 else f"{value:.6g}"
    return text.replace("-", "−")


def percent(share: float) -> str:
    """Format a share for people: two significant digits next to 0 and 100 %."""
    if share <= 0.0 or share >= 1.0:
        return f"{share * 100:.0f} %"
    places = 1 if 0.01 <= share <= 0.99 else 3
    text = f"{share * 100:.{places}f}"
    return "less than 0.001 %" if float(text) == 0 else f"{text} %" if float(text) < 100 else "more than 99.999 %"


def odds_factor(epsilon: Epsilon) -> str:
    """Format e^ε, never rounded down."""
    exact = Decimal(epsilon.nano).scaleb(-9).exp()
    if exact < 100_000:
        return f"{exact.quantize(Decimal('0.01'), ROUND_CEILING):,}"
    power = exact.adjusted()
    with localcontext() as context:
        context.prec = 60
        mantissa = exact.scaleb(-power).quantize(Decimal("0.1"), ROUND_CEILING)
    return f"{mantissa} × 10{str(power).translate(SUPERSCRIPT)}"


def surest(epsilon: Epsilon, odds: Fraction) -> str:
    """Format the largest probability after the release of a fact with prior odds `odds`, never rounded down."""
    factor = Decimal(epsilon.nano).scaleb(-9).exp() * odds.numerator / odds.denominator
    share = 100 * factor / (1 + factor)
    decimal = share.quantize(Decimal("0.1") if epsilon.nano >= 100_000_000 else Decimal("0.01"), ROUND_CEILING)
    return f"{decimal} %" if decimal < 100 else "close to 100 %"


def in_words(epsilon: Epsilon) -> str:
    """Describe the strength of an ε by a rule of thumb, a reading aid and no theorem. From even odds one value may make
    a reader 62.3, 73.2 and 95.3 % sure at the ends of the first three ranges."""
    says = {
        "Strong": "a single value says little about the label behind it.",
        "Solid": "a single value is a weak hint, which everybody can plausibly deny.",
        "Moderate": "a single value is a strong hint, though no proof.",
        "Weak": "for the surest reader, a single value comes close to telling the label behind it.",
    }
    strength = _strength(float(epsilon))
    return f"{strength} protection: {says[strength]}"


def in_all_words(epsilon: Decimal, whose: str) -> str:
    """Describe the strength of all publications so far; `whose`: `the label of an example`, or all labels of a unit."""
    says = {
        "Strong": f"all that was published so far says little about {whose}.",
        "Solid": f"all that was published so far is a weak hint at {whose}, which everybody can plausibly deny.",
        "Moderate": f"all that was published so far is a strong hint at {whose}, though no proof.",
        "Weak": f"for the surest reader, all that was published so far comes close to telling {whose}.",
    }
    strength = _strength(float(epsilon))
    return f"{strength} protection: {says[strength]}"


def _strength(epsilon: float) -> str:
    return "Strong" if epsilon <= 0.5 else "Solid" if epsilon <= 1 else "Moderate" if epsilon <= 3 else "Weak"


def mechanism_words(channel: Channel) -> str:
    """Describe in two sentences how a value is made; everything in them is public."""
    if isinstance(channel, RRChannel):
        if channel.d == 1:
            return (
                "All labels share one bin, so every example got the same value. "
                "The values say nothing on single labels."
            )
        if channel.domain.nominal:
            return (
                "Each example keeps its class with one fixed probability, otherwise it gets another of the "
                f"{channel.d} classes, all alike. Chances are whole numbers out of 2⁶⁴, and every draw uses fresh "
                "randomness of the operating system."
            )
        return (
            f"The label domain is cut into {channel.d} bins, and each example gets the output value of its label's bin "
            "with one fixed probability, otherwise that of another bin drawn with equal chances. "
            "Every draw uses fresh randomness of the operating system and exact integer weights, so that the chances "
            "are those stated here, not approximations."
        )
    if isinstance(channel, OneBitChannel):
        low, high = number(float(channel.low)), number(float(channel.high))
        return (
            f"Each label, clipped to {low} … {high}, becomes one of two output values; the larger the label, the "
            "likelier the upper one, in a straight line that keeps the average right. "
            "One value therefore carries at most one bit, and only averages over many examples say something."
        )
    if isinstance(channel, LatticeChannel):
        return _lattice_words(channel)
    if isinstance(channel, KnotsChannel):
        accuracy = (
            "exactly right" if channel.unbiased else f"right to {number(rounded_up(channel.residual_bias))} at worst"
        )
        text = (
            f"Each label becomes one of {channel.m} output values, by chances that keep its average {accuracy} and are "
            "whole numbers out of 2⁶⁴, written out in the manifest. Any label could have become any of the values."
        )
        if channel.knots.size == channel.k:
            return text
        return (
            f"{text} A label between the {channel.knots.size} that have chances of their own becomes one of the two "
            "beside it at random first, which keeps its average."
        )
    if isinstance(channel, TopLabelsChannel):
        return (
            f"The {channel.d} likeliest labels of the prior are the output values. An example with one of them keeps "
            "it with one fixed probability, otherwise it gets another of them, all alike; an example with any other "
            "label gets one of them, all alike. Chances are whole numbers out of 2⁶⁴."
        )
    if isinstance(channel, SubsetChannel):
        return (
            f"Each example gets one of {channel.m} public subsets of the labels, of up to {channel.d} each. A subset "
            "with the example's label has one fixed chance, every other subset a smaller one, all alike. A row names "
            "one label of its subset, by which it is numbered; that is no guess at the label. Chances are whole "
            "numbers out of 2⁶⁴."
        )
    return (
        "Each label becomes one of the listed output values with the chances in the manifest's table of weights. "
        "Every output is possible under every label, and no two labels differ in any chance by more than e^ε."
    )


def _lattice_words(channel: LatticeChannel) -> str:
    first, last = number(float(channel.outputs[0])), number(float(channel.outputs[-1]))
    sentences = []
    if isinstance(channel, NoiseChannel):
        shape = "a Laplace" if isinstance(channel, LaplaceChannel) else "a staircase"
        sentences.append(
            f"Random noise with {shape} distribution, wide enough for the whole domain, is added to each label."
        )
        if channel.reach == 0:
            sentences.append("The sum is clipped to the ends of the domain.")
        else:
            sentences.append(
                f"Sums may leave the domain; beyond {first} and {last}, which hardly any reaches, they end there."
            )
    else:
        sentences.append(
            "Each label becomes a value within the domain, the nearer the likelier (the exponential mechanism)."
        )
    sentences.append(
        f"Values lie on a public lattice {number(channel.lattice_step)} apart, and their chances are whole numbers out "
        "of 2⁶⁴: no rounding hints at a label."
    )
    if not channel.on_lattice:
        sentences.append(
            "A label between two points becomes either of them at random first, so that averages stay right."
        )
    return " ".join(sentences)
