"""The shop's pages: what they say, and where actions lead."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentr1_core.errors import DataError
from agentr1_recipes.webshop.catalogue import Catalogue
from agentr1_recipes.webshop.env import find_action
from agentr1_recipes.webshop.loader import open_catalogue, open_shop, read_goals
from agentr1_recipes.webshop.product import Product
from agentr1_recipes.webshop.shop import Page, Shop, parse_action

LAMPS = [
    Product(
        f"B{number:09d}",
        f"Oak lamp {number}",
        description="Gives light.",
        bullets=("Is oak.", "Is a lamp."),
        options={"color": ("red", "blue"), "shade": ("blue", "none")},
        attributes=("hand made",),
        query="lamps",
        product_category="Home › Light",
        category="home",
    )
    for number in range(73)
]


@pytest.fixture(scope="module")
def shop():
    return Shop(Catalogue(LAMPS))


def go(shop, *actions, page=None):
    page = page or Page()
    for action in actions:
        after = shop.visit(page, action)
        assert after is not None, f"{action} is not possible on {page}"
        page = after
    return page


def test_the_start_has_a_search_field_and_nothing_to_click(shop):
    assert shop.text(Page(), "a lamp") == "WebShop [SEP] Instruction: [SEP] a lamp [SEP] Search"
    assert shop.clickables(Page()) == []
    assert shop.visit(Page(), "click[search]") is None


def test_results_come_ten_a_page_and_fifty_at_most(shop):
    page = go(shop, "search[oak lamp]")
    text = shop.text(page, "a lamp").split(" [SEP] ")
    assert text[:5] == ["Instruction:", "a lamp", "Back to Search", "Page 1 (Total results: 50)", "Next >"]
    assert len(text) == 5 + 10 * 3
    asin, title, price = text[5:8]
    assert (title, price) == (shop.catalogue.by_asin[asin].title, "$100.0")
    second = go(shop, "click[Next >]", page=page)
    assert shop.text(second, "a lamp").split(" [SEP] ")[3:6] == ["Page 2 (Total results: 50)", "< Prev", "Next >"]
    assert go(shop, "click[< prev]", page=second) == page
    beyond = go(shop, *["click[next >]"] * 5, page=page)
    assert shop.clickables(beyond) == ["back to search", "< prev", "next >"]  # as in WebShop: an empty page


def test_an_item_its_options_and_its_details(shop):
    results = go(shop, "search[oak lamp]", "click[next >]")
    asin = shop.clickables(results)[3]
    item = go(shop, f"click[{asin}]", page=results)
    product = shop.catalogue.by_asin[asin.upper()]
    assert shop.text(item, "a lamp").split(" [SEP] ")[2:] == [
        *("Back to Search", "< Prev", "color", "red", "blue", "shade", "blue", "none"),
        *(product.title, "Price: $100.0", "Rating: N.A.", "Description", "Features", "Reviews", "Buy Now"),
    ]
    chosen = go(shop, "click[RED]", page=item)
    assert chosen.chosen == {"color": "red"}
    assert shop.text(chosen, "a lamp") == shop.text(item, "a lamp")
    assert chosen.key != item.key
    detail = go(shop, "click[features]", page=chosen)
    assert shop.text(detail, "a lamp").split(" [SEP] ")[2:] == ["Back to Search", "< Prev", "Is oak.", "Is a lamp."]
    assert go(shop, "click[< prev]", page=detail) == chosen
    assert go(shop, "click[< prev]", page=chosen) == results
    bought = go(shop, "click[buy now]", page=chosen)
    assert (bought.kind, bought.asin, bought.chosen) == ("bought", asin.upper(), {"color": "red"})


def test_a_value_of_two_options_sets_the_last(shop):
    results = go(shop, "search[oak lamp]")
    page = go(shop, f"click[{shop.clickables(results)[2]}]", "click[blue]", page=results)
    assert page.chosen == {"shade": "blue"}


def test_search_works_on_any_page_and_forgets_what_was_chosen(shop):
    page = go(shop, "search[oak lamp]", "click[next >]")
    page = go(shop, f"click[{shop.clickables(page)[3]}]", "click[red]", "click[description]", page=page)
    assert go(shop, "search[Light]", page=page) == Page("results", keywords="light")
    assert go(shop, "click[Back to Search]", page=page) == Page()


def test_attributes_are_hidden_unless_shown():
    shop = Shop(Catalogue(LAMPS), show_attributes=True)
    page = go(shop, "search[oak lamp]")
    page = go(shop, f"click[{shop.clickables(page)[2]}]", page=page)
    assert "attributes" in shop.clickables(page)
    assert shop.text(go(shop, "click[attributes]", page=page), "x").endswith(
        "hand made [SEP] home [SEP] lamps [SEP] Home › Light"
    )


@pytest.mark.parametrize(
    "action", ["", "buy", "click[]", "search[]", "click[nothing]", "sell[oak]", "click [red]", "[x]"]
)
def test_what_the_page_does_not_allow_is_refused(shop, action):
    assert shop.visit(go(shop, "search[oak]"), action) is None


@settings(deadline=None, max_examples=40)
@given(st.text())
def test_any_text_is_an_action_or_none(text):
    found = find_action(text)
    assert found is None or parse_action(found)[0] in ("search", "click")


def test_the_last_action_of_an_answer_counts():
    assert find_action("I could click[a].\nsearch[b]\nclick[Buy Now]") == "click[buy now]"
    assert find_action("Thinking.\n  search[tea]  \n") == "search[tea]"
    assert find_action("I shall click the button.") is None


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6))
def test_everything_that_can_be_clicked_leads_somewhere(seed):
    shop, rng = open_shop(None), random.Random(seed)
    page = go(shop, f"search[{rng.choice(shop.catalogue.products).title}]")
    for _ in range(8):
        can = shop.clickables(page)
        if not can:
            assert page.kind in ("start", "bought")
            break
        assert len(can) == len(set(can))
        assert rng.choice(can) in shop.text(page, "").lower()
        page = go(shop, f"click[{rng.choice(can)}]", page=page)


def test_the_invented_catalogue_is_read_as_the_real_one_and_has_both_kinds_of_goals():
    catalogue = open_catalogue(None)
    assert len(catalogue.products) == 144
    assert len(read_goals(None, "human")) == 288
    synthetic = read_goals(None, "synthetic")
    assert len({goal.instruction for goal in synthetic}) > 300
    assert all(goal.asin in catalogue.by_asin for goal in synthetic)


def test_a_folder_that_holds_no_catalogue_is_told(tmp_path):
    with pytest.raises(DataError, match=r"(?s)There is no items_shuffle\.json in .*setup\.sh"):
        open_catalogue(str(tmp_path))
    (tmp_path / "items_ins_v2.json").write_text("{}")
    (tmp_path / "items_shuffle.json").write_text('[{"asin": "A1"}]')
    with pytest.raises(
        DataError, match=r"items_shuffle\.json product 0: not a product of WebShop \(KeyError: 'name'\)"
    ):
        open_catalogue(str(tmp_path))
    (tmp_path / "items_shuffle.json").write_text('[{"asin": ')
    with pytest.raises(DataError, match=r"items_shuffle\.json' cannot be read"):
        open_catalogue(str(tmp_path))
