"""The rule by which conversion events become labels. Events are those of IAB Tech Lab's Event & Conversion API 1.0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from label_dp.schemas.base import Ask, whole

CUSTOM = "custom"
CUSTOM_PREFIX = "custom:"  # and the event's `custom_event`
STANDARD = """
purchase page_view ad_impression add_to_wishlist add_to_cart viewed_cart viewed_item begin_checkout add_payment_info
remove_from_cart refund generate_lead qualify_lead close_convert_lead disqualify_lead close_unconvert_lead sign_up
search unlock_achievement install customize_product contact donate find_location schedule start_trial subscribe
"""
ADDITIONAL = """
add_shipping_info share select_content select_item select_promotion view_item_list view_promotion view_search_results
spend_virtual_currency earn_virtual_currency working_lead login join_group level_up post_score tutorial_begin
tutorial_complete
"""
TYPES = frozenset((STANDARD + ADDITIONAL).split())
_NAME = r"[^.\x00-\x20]{1,60}"
EXAMPLE_PATH = rf"^(user_data\.(click_id|impression_id)|((user_data|properties)\.)?ext\.{_NAME}(\.{_NAME}){{0,3}})$"
LONGEST_NAME = 200
DAY_SECONDS = 86_400

TAKEN = {
    "any": "1 if more count as + than as -, else 0, of",
    "count": "number of",
    "sum": "sum of the values of",
    "first": "first value of",
    "last": "last value of",
    "max": "largest value of",
}
BECAME = {  # of events, in the order in which a fold counts them; their sum is `records`
    "repeats": "merged into an earlier record of the same event",
    "other_type": "left out: of a type that the rule does not name",
    "mmt_only": "left out: marked mmt_only",
    "without_example": "left out: without an example id",
    "without_value": "left out: without a value",
    "other_currency": "left out: with its value in another currency",
    "not_listed": "left out: of an example that the batch does not list",
    "outside_window": "left out: outside the window of its example",
    "counted": "counted",
}

Sign = Literal["+", "-"]
Take = Literal["any", "count", "sum", "first", "last", "max"]


class EventRule(Ask):
    """What of the events of a data set is the label of an example: public, and fixed once declared."""

    model_config = whole(
        {
            "data_set_id": "shop-orders",
            "types": {"purchase": "+", "refund": "-"},
            "take": "sum",
            "currency": "EUR",
            "window_days": 7,
        }
    )

    data_set_id: str = Field(
        min_length=1,
        max_length=LONGEST_NAME,
        examples=["shop-orders"],
        description="The events' data_set_id; one event feeds every population that names it.",
    )
    types: dict[str, Sign] = Field(
        min_length=1,
        max_length=50,
        examples=[{"purchase": "+", "refund": "-"}],
        description="Types of events that count, each with its sign; custom:NAME stands for a custom_event NAME. "
        "What subtracts lowers a label whether its value is 20 or -20.",
    )
    take: Take = Field(
        description="any: 1 if more events add than subtract, else 0; count: their difference; sum, first, last or max "
        "of their signed values; of the same second the larger one is first, and last."
    )
    example_id: str = Field(
        default="user_data.click_id",
        pattern=EXAMPLE_PATH,
        examples=["user_data.click_id", "user_data.impression_id", "user_data.ext.order_click"],
        description="Member of the event that holds the example id.",
    )
    currency: str | None = Field(
        default=None,
        pattern="^[A-Z]{3}$",
        examples=["EUR"],
        description="ISO 4217 code of the values; required by sum, first, last and max. Nothing is converted.",
    )
    other_currency: Literal["refuse", "leave-out"] = Field(
        default="refuse", description="What becomes of an event with its value in another currency."
    )
    window_days: int | None = Field(
        default=None,
        ge=1,
        le=3650,
        description="Days from an example's time in which its events count, the last second excluded; the list of "
        "examples then has a column 'time', in Unix seconds. Without it events count until the seal.",
    )
    mmt_only: Literal["leave-out", "count"] = Field(
        default="leave-out",
        description="What becomes of events marked mmt_only, which are not for the optimisation of delivery.",
    )

    @property
    def of_values(self) -> bool:
        """True if the label is made of values, not of the number of events."""
        return self.take not in ("any", "count")

    @property
    def window_seconds(self) -> int | None:
        return None if self.window_days is None else DAY_SECONDS * self.window_days

    @property
    def example_path(self) -> tuple[str, ...]:
        return tuple(self.example_id.split("."))

    @property
    def sentence(self) -> str:
        """Describe the rule to people."""
        types = " and ".join(f"{name} ({sign})" for name, sign in self.types.items())
        other = "are refused" if self.other_currency == "refuse" else "count for nothing"
        parts = [
            f"{TAKEN[self.take]} the events {types} of data set {self.data_set_id}",
            f"by {self.example_id}, "
            + (
                "until the seal"
                if self.window_days is None
                else f"{self.window_days} day{'s' * (self.window_days > 1)} from the example's time on"
            ),
        ]
        if self.of_values:
            parts.append(f"values are in {self.currency}, those in another currency {other}")
        if self.mmt_only == "count":
            parts.append("events marked mmt_only count too")
        return "; ".join(parts)


@dataclass(frozen=True)
class DataSet:
    """One data set. `currencies`: of types whose values some population refuses in another currency."""

    name: str
    example_path: tuple[str, ...]
    currencies: dict[str, str]
