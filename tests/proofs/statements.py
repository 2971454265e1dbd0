"""Steps of the arithmetic that ε rests on, as statements for z3: for all numbers, not for those of a sample.

`x` is e^ε: any real number from 1 on. A statement holds where its premises hold; `bug` replaces one premise by that of
a wrong program. "One more" is a step of an induction: what holds so far holds with one term, charge or output more.
Nothing here is bounded but the bits of an alias table, 1 to 24, in words of 64 bits. What a premise says of the code is
checked in `test_small_cases.py`, for small numbers, or by the test that deploy/guides/what-epsilon-rests-on.md names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import z3

Premises = dict[str, z3.BoolRef]


@dataclass(frozen=True)
class Statement:
    """Premises by name, what follows, and the premise of a wrong program from which it does not."""

    premises: Premises
    claim: z3.BoolRef
    bug: Premises


def reals(names: str) -> list[z3.ArithRef]:
    return list(z3.Reals(names))


def integers(names: str) -> list[z3.ArithRef]:
    return list(z3.Ints(names))


# --- channels ------------------------------------------------------------------------------------------------


def rows_of_integers() -> Statement:
    """`WeightedChannel.satisfies`: the largest weight of a column is at most r times its least one, and r ≤ e^ε."""
    a, b, most, least, r, x = reals("a b most least r x")
    premises = {
        "column": z3.And(a >= 0, a <= most, least > 0, least <= b),
        "proof": most <= r * least,
        "bound": r <= x,
    }
    return Statement(premises, a <= x * b, {"bound": r >= x})


def impossible_outputs() -> Statement:
    """A weight of 0 under one label has to be 0 under all."""
    a, b, r = reals("a b r")
    return Statement({"row": z3.And(a >= 0, b == 0), "proof": a <= r * b}, a == 0, {"proof": a >= r * b})


def sets_of_outputs() -> Statement:
    """One output more: the bound of a set goes on. So does that of clipped noise, whose ends are sets of outputs."""
    a, b, more, less, x = reals("a b more less x")
    premises = {"set": a <= x * b, "output": more <= x * less}
    return Statement(premises, a + more <= x * (b + less), {"output": more <= x * less + 1})


def labels_between_points() -> Statement:
    """Mixtures of rows, s and t out of N: labels that are rounded to lattice points or knots."""
    low, high, low_2, high_2, x, s, t, n = reals("low high low_2 high_2 x s t n")
    premises = {
        "weights": z3.And(low >= 0, high >= 0, low_2 >= 0, high_2 >= 0),
        "shares": z3.And(s >= 0, s <= n, t >= 0, t <= n),
        "lower row": z3.And(low <= x * low_2, low <= x * high_2),
        "upper row": z3.And(high <= x * low_2, high <= x * high_2),
    }
    claim = (n - s) * low + s * high <= x * ((n - t) * low_2 + t * high_2)
    return Statement(premises, claim, {"upper row": high <= x * high_2})


def weights_of_randomized_response() -> Statement:
    """`rr_weights`: B rounded up from a lower bound of e^ε, A what is left."""
    own, other, d, n, low, x = reals("A B d n low x")
    premises = {
        "sizes": z3.And(n > 0, other > 0, d >= 1, low >= 1),
        "bound": low <= x,
        "B": other * (low + d - 1) >= n,
        "A": own == n - (d - 1) * other,
    }
    return Statement(premises, own <= x * other, {"B": other * (low + d - 1) <= n})


def words_of_randomized_response() -> Statement:
    """`sample_rr`: a word from A on gives one of the d − 1 other bins, B words each."""
    own, other, d, n, u, at = integers("A B d n u at")
    premises = {
        "weights": z3.And(own >= other, other >= 1, own + (d - 1) * other == n),
        "word": z3.And(own <= u, u < n),
        "division": z3.And(at * other <= u - own, u - own < (at + 1) * other),
    }
    return Statement(premises, z3.And(at >= 0, at <= d - 2), {"word": z3.And(own <= u, u <= n)})


def weights_of_one_bit() -> Statement:
    """`OneBitChannel`: every weight between B and A, for both of the outputs."""
    own, other, n, x, w, w_2 = reals("A B n x w w_2")
    premises = {
        "odds": z3.And(own <= x * other, other > 0, x >= 1),
        "sum": own + other == n,
        "weight": z3.And(other <= w, w <= own),
        "another": z3.And(other <= w_2, w_2 <= own),
    }
    claim = z3.And(w <= x * w_2, n - w <= x * (n - w_2))
    return Statement(premises, claim, {"sum": own + other <= n + 1})


# --- bounds of e^x -------------------------------------------------------------------------------------------


def terms_of_the_series() -> Statement:
    """`exp_bounds`: a term below (above) the true one, times z rounded down (up), divided down (up), stays there."""
    low, true, high, z_low, z, z_high, part = reals("low true high z_low z z_high part")
    next_low, next_true, next_high = reals("next_low next_true next_high")
    premises = {
        "terms": z3.And(low >= 0, low <= true, true <= high, part > 0),
        "argument": z3.And(z_low >= 0, z_low <= z, z <= z_high),
        "true": next_true * part == true * z,
        "down": next_low * part <= low * z_low,
        "up": next_high * part >= high * z_high,
    }
    bug = {"down": z3.And(next_low * part >= low * z_low, next_low * part < low * z_low + part)}
    return Statement(premises, z3.And(next_low <= next_true, next_true <= next_high), bug)


def squares() -> Statement:
    """`exp_bounds`: bounds of e^y, squared and rounded, are bounds of e^2y."""
    low, true, high, one, low_2, true_2, high_2 = reals("low true high one low_2 true_2 high_2")
    premises = {
        "bounds": z3.And(one > 0, low >= 0, low <= true, true <= high),
        "true": true_2 * one == true * true,
        "down": low_2 * one <= low * low,
        "up": high_2 * one >= high * high,
    }
    bug = {"up": z3.And(high_2 * one <= high * high, high_2 * one > high * high - one)}
    return Statement(premises, z3.And(low_2 <= true_2, true_2 <= high_2), bug)


def tail_of_the_series() -> Statement:
    """`exp_bounds`: terms that halve at least add up to no more than the one before them (one term more)."""
    total, term, following, first = reals("total term following first")
    premises = {"so far": total + term <= first, "falling": 2 * following <= term}
    return Statement(premises, total + following + following <= first, {"falling": following <= term})


# --- nano-ε --------------------------------------------------------------------------------------------------


def rounding_by_name() -> Statement:
    """`Epsilon.round_up`, `Epsilon.round_down`: the least above, the largest below, one apart at most."""
    value, (up, down, other) = z3.Real("value"), integers("up down other")
    premises = {"up": up == -z3.ToInt(-value), "down": down == z3.ToInt(value)}
    claim = z3.And(down <= value, value <= up, up - down <= 1)
    claim = z3.And(claim, z3.Implies(other >= value, other >= up), z3.Implies(other <= value, other <= down))
    return Statement(premises, claim, {"up": up == z3.ToInt(value)})


def sums_of_charges() -> Statement:
    """`judge`: charges rounded up and held to the lifetime hold the sum of the true costs to it (one charge more)."""
    (cost, paid), (asked, spent, lifetime) = reals("cost paid"), integers("asked spent lifetime")
    premises = {
        "so far": z3.And(paid >= 0, paid <= spent, spent <= lifetime),
        "rounded": z3.And(cost >= 0, cost <= asked, asked < cost + 1),
        "granted": asked <= lifetime - spent,
    }
    claim = z3.And(paid + cost <= spent + asked, spent + asked <= lifetime)
    return Statement(premises, claim, {"rounded": z3.And(asked >= 0, asked <= cost, cost < asked + 1)})


def split_of_epsilon() -> Statement:
    """`EpsilonSplit` of a plan: shares rounded down, the labels take what is left; none is negative."""
    (share, share_2), (total, clip, prior, rest) = reals("share share_2"), integers("total clip prior rest")
    premises = {
        "shares": z3.And(share >= 0, share_2 >= 0, share + share_2 <= total),
        "rounded": z3.And(clip == z3.ToInt(share), prior == z3.ToInt(share_2)),
        "left": rest == total - clip - prior,
    }
    claim = z3.And(clip + prior + rest == total, clip >= 0, prior >= 0, rest >= 0)
    return Statement(premises, claim, {"rounded": z3.And(clip == -z3.ToInt(-share), prior == -z3.ToInt(-share_2))})


def epsilon_of_a_unit() -> Statement:
    """`PrivacyUnit.bound`: N examples of at most the largest ε each (c examples of a batch more)."""
    total, n, largest, c, own = reals("total n largest c own")
    premises = {"so far": total <= n * largest, "batch": own <= largest, "examples": c >= 0}
    return Statement(premises, total + c * own <= (n + c) * largest, {"batch": own <= largest + 1})


def delta_of_a_unit() -> Statement:
    """`PrivacyUnit.bound_delta`: 1 + x + … + x^(N−1) ≤ N·x^(N−1) (one power more)."""
    total, n, power, x = reals("total n power x")
    premises = {"so far": total <= n * power, "sizes": z3.And(n >= 1, power > 0), "x": x >= 1}
    return Statement(premises, total + power * x <= (n + 1) * (power * x), {"x": x > 0})


# --- noise ---------------------------------------------------------------------------------------------------


def periods_of_noise() -> Statement:
    """`half_table`: a weight `cells` steps on is the weight times b, rounded up, and b·e^ε ≥ 2⁸⁰."""
    w, later, b, one, x = reals("w later b one x")
    premises = {"b": z3.And(b * x >= one, one > 0), "sizes": z3.And(w >= 0, x >= 1), "up": later * one >= w * b}
    return Statement(premises, w <= x * later, {"up": z3.And(later * one <= w * b, w * b < (later + 1) * one)})


def tail_of_noise() -> Statement:
    """`half_table`: the tail from the reach on beside the tail a whole domain further, with any remainder on top."""
    inside, tail, more, b, one, x = reals("inside tail more b one x")
    premises = {
        "b": z3.And(b * x >= one, b > 0, b < one),
        "sizes": z3.And(inside >= 0, more >= 0, x >= 1),
        "up": tail * (one - b) >= inside * b,
    }
    bug = {"up": z3.And(tail * (one - b) <= inside * b, tail >= 0)}
    return Statement(premises, inside + tail + more <= x * (tail + more), bug)


def windows_of_noise() -> Statement:
    """`NoiseChannel.worst_case_odds`: outputs inside the reach need only pairs w[s], w[s + cells] (reach ≥ 1)."""
    output, a, a_2, cells, reach, beyond = integers("output a a_2 cells reach beyond")
    w, r = z3.Function("w", z3.IntSort(), z3.RealSort()), z3.Real("r")
    near, far = z3.Abs(output - a), z3.Abs(output - a_2)
    premises = {
        "points": z3.And(a >= 0, a <= cells, a_2 >= 0, a_2 <= cells, -reach < output, output < cells + reach),
        "beyond": z3.And(
            *(beyond >= each for each in (0, -output, output - cells)),
            z3.Or(beyond == 0, beyond == -output, beyond == output - cells),
        ),
        "falling": z3.And(
            z3.Implies(beyond <= near, w(near) <= w(beyond)),
            z3.Implies(far <= beyond + cells, w(beyond + cells) <= w(far)),
        ),
        "pairs": z3.And(r >= 1, reach >= 1, z3.Implies(beyond < reach, w(beyond) <= r * w(beyond + cells))),
    }
    # an end of the reach is no pair of weights: it compares tails
    bug = {"points": z3.And(a >= 0, a <= cells, a_2 >= 0, a_2 <= cells, -reach <= output, output < cells + reach)}
    return Statement(premises, w(near) <= r * w(far), bug)


def moves_of_laplace_noise() -> Statement:
    """`LaplaceNoise`: one count more; what the exponent |z − c|/s of a neighbour loses is what was moved, over s."""
    lost, moved, output, count, other = reals("lost moved output count other")
    premises = {"so far": lost <= moved}
    after = lost + z3.Abs(output - other) - z3.Abs(output - count)
    return Statement(premises, after <= moved + z3.Abs(count - other), {"so far": lost <= moved + 1})


def scale_of_laplace_noise() -> Statement:
    """`LaplaceNoise.scale`: at least sensitivity / (ε rounded down), so moved / scale ≤ ε."""
    moved, sensitivity, scale, below, epsilon = reals("moved sensitivity scale below epsilon")
    premises = {
        "moved": z3.And(moved >= 0, moved <= sensitivity),
        "below": z3.And(below > 0, below <= epsilon),
        "up": z3.And(scale > 0, scale * below >= sensitivity),
    }
    return Statement(premises, moved <= epsilon * scale, {"up": z3.And(scale > 0, scale * below <= sensitivity)})


# --- alias tables --------------------------------------------------------------------------------------------


def thresholds_of_alias_tables() -> Statement:
    """`alias_table`: the threshold of a heavy column lies in its column: the first light one with left > lacking."""
    capacity, lacking, before, left, weight = integers("capacity lacking before left weight")
    premises = {
        "search": z3.And(before <= lacking, lacking < left),
        "light": z3.And(weight >= 0, weight < capacity, left == before + capacity - weight),
    }
    threshold = capacity + lacking - left
    bug = {"search": z3.And(before < lacking, lacking <= left)}
    return Statement(premises, z3.And(threshold >= 0, threshold < capacity), bug)


def order_of_heavy_outputs() -> Statement:
    """`alias_table`: the next heavy output is filled up by the same light column or a later one, so each light column
    gives to one heavy output, and those that give to a heavy output stand in a row: their sum is a difference."""
    first, following, lacking, lacking_2 = integers("first following lacking lacking_2")
    weight, capacity = integers("weight capacity")
    left = z3.Function("left", z3.IntSort(), z3.IntSort())
    premises = {
        "search": z3.And(left(first - 1) <= lacking, lacking < left(first)),
        "next": z3.And(left(following - 1) <= lacking_2, lacking_2 < left(following)),
        "sums": z3.Implies(following <= first - 1, left(following) <= left(first - 1)),
        "heavy": z3.And(lacking_2 == lacking + weight - capacity, weight >= capacity),
    }
    bug = {"heavy": z3.And(lacking_2 == lacking + weight - capacity, weight >= 0)}
    return Statement(premises, first <= following, bug)


def mass_of_a_heavy_output() -> Statement:
    """`alias_table`: own words, those of the light columns in between, and what the heavy one before passes on."""
    weight, capacity, lacking_0, lacking, left_0, left = integers("weight capacity lacking_0 lacking left_0 left")
    own, from_light, passed = integers("own from_light passed")
    premises = {
        "lacking": lacking == lacking_0 + weight - capacity,
        "own": own == capacity + lacking - left,
        "light": from_light == left - left_0,
        "passed": passed == left_0 - lacking_0,
    }
    return Statement(premises, own + from_light + passed == weight, {"passed": passed == 0})


def mass_of_the_last_heavy_outputs() -> Statement:
    """`alias_table`: once all that is left is given, a heavy output owns its column whole; the row has to sum to N."""
    weight, capacity, lacking_0, lacking, left_0, left = integers("weight capacity lacking_0 lacking left_0 left")
    premises = {
        "lacking": lacking == lacking_0 + weight - capacity,
        "sum": lacking == left,
    }
    total = capacity + (left - left_0) + (left_0 - lacking_0)
    return Statement(premises, total == weight, {"sum": lacking == left + 1})


def words_of_alias_tables() -> Statement:
    """`AliasSampler`: shifts, masks and products of 64-bit words select the column's own output below its threshold."""
    column, low, threshold, alias, bits, cond = z3.BitVecs("column low threshold alias bits cond", 64)
    one, up = z3.BitVecVal(1, 64), 64 - bits
    word, entry, aliases = column << up | low, threshold << bits | alias, (one << bits) - 1
    outputs, other = z3.LShR(word, up), entry & aliases
    cut = entry ^ other
    premises = {
        "bits": z3.And(z3.ULE(1, bits), z3.ULE(bits, 24)),
        "word": z3.And(z3.ULT(column, one << bits), z3.ULT(low, one << up)),
        "entry": z3.And(z3.ULT(threshold, one << up), z3.ULT(alias, one << bits)),
        "compare": cond == z3.If(z3.UGE(word << bits, cut), one, z3.BitVecVal(0, 64)),
    }
    claim = outputs + (other - outputs) * cond == z3.If(z3.ULT(low, threshold), column, alias)
    bug = {"compare": cond == z3.If(z3.UGT(word << bits, cut), one, z3.BitVecVal(0, 64))}
    return Statement(premises, claim, bug)


# --- choices -------------------------------------------------------------------------------------------------


def floors_of_a_choice() -> Statement:
    """`weights` of a choice: η on each. The least score moves by a factor a: numerators move by at most a·g and sums by
    g/a, g = e^(cΔ), which is g² together."""
    w, w_2, floor, a, g = reals("w w_2 floor a g")
    premises = {
        "moved": z3.And(w >= 0, w_2 >= 0, floor > 0, w <= a * g * w_2, a * w_2 <= g * w),
        "factor": z3.And(a > 0, a * g >= 1, a <= g),
    }
    claim = z3.And(w + floor <= a * g * (w_2 + floor), a * (w_2 + floor) <= g * (w + floor))
    return Statement(premises, claim, {"factor": z3.And(a > 0, g >= 1)})


def uniform_integers() -> Statement:
    """`uniform_below`: value·bound >> bits gives each number as many of W words as the next, up to one."""
    low, high, start, words, bound = reals("low high start words bound")
    premises = {
        "first": z3.And((low - 1) * bound < start, start <= low * bound, bound > 0),
        "next": z3.And((high - 1) * bound < start + words, start + words <= high * bound),
    }
    claim = z3.And((high - low) * bound > words - bound, (high - low) * bound < words + bound)
    bug = {"next": z3.And((high - 1) * bound <= start + words, start + words <= (high + 1) * bound)}
    return Statement(premises, claim, bug)


def statements() -> Iterator[Callable[[], Statement]]:
    """Every function of this module that makes a statement."""
    for each in list(globals().values()):
        if getattr(each, "__annotations__", {}).get("return") == "Statement":
            yield each
