"""The config service's page in a real Chromium: every view, by keyboard too, and no other host."""

from __future__ import annotations

import time
from urllib.parse import urlsplit

import page_world
import pytest
from page_site import Site
from page_world import A100, COPY, H200, HOSTILE, SCAN, a_record
from serving import serving

import launchkit
from launchkit.service import auth, protocol, spaces

TOKEN_REFUSED = "the server responded with a status of 401"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A service of two namespaces, with something to show in the first one."""
    database = tmp_path_factory.mktemp("page") / "service.db"
    with serving(f"sqlite:///{database}") as running:
        spaces.make(running.service.database, "empty", "a test")
        spaces.make(running.service.database, "secret", "a test")
        page_world.fill(running)
        yield running


def token(served, scope, *namespaces):
    return auth.create_token(served.service.database, f"ada-{scope}", scope, namespaces)


@pytest.fixture(scope="module")
def visit(browser, served):
    """The page of a reader of two namespaces."""
    site = Site(browser, served)
    secret = token(served, "read", "default", "empty")
    site.log_in(secret)
    return site, secret


@pytest.fixture
def site(visit):
    """The same, logged in again if a test has logged out."""
    found, secret = visit
    if not found.browser.get_cookies():
        found.log_in(secret)
    found.browser.set_window_size(1400, 1000)
    return found


def path_of(record):
    parts = "/".join(protocol.record_parts(record.kernel, record.device, record.key))
    return f"/web/default/records/{parts}?toolchain={record.toolchain.triton}"


def test_who_is_not_logged_in_is_asked_for_a_token_and_then_sees_the_page(
    site, served, expected_errors
):
    expected_errors.append(TOKEN_REFUSED)
    site.browser.delete_all_cookies()
    site.open("/web/default/kernels?q=scan")
    assert site.path() == "/login"
    site.press("lk_000000000000_" + "A" * 43, "\n")
    site.wait_for("[role=alert]", "not known here")
    site.find("#token").send_keys(token(served, "read", "default") + "\n")
    site.wait_for("h1", "Kernels")
    assert [row[0] for row in site.table()] == [SCAN.name]


def test_token_is_in_a_cookie_that_no_script_and_no_other_site_can_use(site):
    (cookie,) = site.browser.get_cookies()
    assert cookie["httpOnly"] is True
    assert cookie["sameSite"] == "Strict"
    assert site.browser.execute_script("return document.cookie") == ""


def test_logging_out_forgets_the_token(site):
    site.open("/web/default")
    site.click(site.find(".visitor button"))
    site.wait_for("h1", "Log in")
    assert site.browser.get_cookies() == []
    assert site.open("/web/default").path() == "/login"


def test_first_page_has_the_namespaces_that_the_token_may_read(site):
    rows = {row[0]: row[1:] for row in site.open("/").table()}
    assert set(rows) == {"default", "empty"}
    assert rows["default"] == ["71", "3", "12", "20.0%", "3 minutes"]


def test_overview_counts_what_is_stored_asked_for_and_tuned(site):
    site.open("/web/default")
    figures = dict(
        zip(
            (each.text for each in site.all(".figures dt")),
            (each.text for each in site.all(".figures dd")),
            strict=True,
        )
    )
    assert figures["Records"] == "71"
    assert figures["Kernels"] == "3"
    assert figures["Devices"] == "2"
    assert figures["Lookups found"] == "20.0%"
    assert figures["Being tuned"] == "1"
    assert "5 times (absent)" in site.find("main li").text


def test_empty_namespace_says_what_to_do(site):
    assert "LAUNCHKIT_SERVICE" in site.open("/web/empty").find("main").text


def test_kernels_are_listed_and_found_by_name(site):
    assert [row[:3] for row in site.open("/web/default/kernels").table()] == [
        [HOSTILE.name, "1", "1"], [SCAN.name, "69", "2"], [COPY.name, "1", "1"],
    ]  # fmt: skip
    site.find("#q").send_keys("COPY\n")
    site.wait_for("main tbody", COPY.name)
    assert [row[0] for row in site.table()] == [COPY.name]


def test_what_a_record_holds_is_text_and_runs_nothing(site):
    site.open(path_of(a_record(HOSTILE, H200, 1)))
    assert HOSTILE.name in site.find(".trail").text
    assert "<img src=x onerror=alert(2)>" in site.find("main").text
    assert site.all("main img, main script") == []
    scripts = site.browser.execute_script("return [...document.scripts].map(each => each.src)")
    assert [urlsplit(each).path.rpartition("/")[2] for each in scripts] == ["page.js"]


def test_kernel_has_its_versions_by_device_and_triton(site):
    site.open(f"/web/default/kernel?name={SCAN.name}")
    rows = site.table(0)
    found = sorted((row[0], row[1], row[2], row[3]) for row in rows)
    digest = SCAN.digest[:12]
    assert found == [
        (digest, A100.name, "3.6.0", "8"), (digest, H200.name, "3.4.0", "1"),
        (digest, H200.name, "3.6.0", "60"),
    ]  # fmt: skip
    assert len(site.table(1)) == 50


def test_devices_lead_to_their_keys(site):
    rows = site.open("/web/default/devices").table()
    assert [row[:4] for row in rows] == [
        [A100.name, A100.slug, "1", "8"], [H200.name, H200.slug, "3", "63"],
    ]  # fmt: skip
    site.click(site.find("main tbody a"))
    site.wait_for("h1", "Keys")
    assert {row[2] for row in site.table()} == {A100.name}


def test_search_begins_with_a_slash_and_finds_keys(site):
    site.open("/web/default")
    site.press("/", "n=7 h200 copy", "\n")
    site.wait_for("h1", "Keys")
    assert site.find("#q").get_attribute("value") == "n=7 h200 copy"
    assert [row[0] for row in site.table()] == [COPY.name]


def test_pages_of_keys_are_turned_and_no_key_is_lost(site):
    site.open("/web/default/records?order=name")
    seen = [tuple(row[:4]) for row in site.table()]
    assert len(seen) == 50
    site.click(site.find("a[rel=next]"))
    site.wait_for(".pager", "Page 2")
    seen += [tuple(row[:4]) for row in site.table()]
    assert len(set(seen)) == len(seen) == 71
    assert site.all("a[rel=next]") == []


def test_plot_shows_each_config_where_its_times_say(site):
    record = a_record(SCAN, H200, 3)
    site.open(path_of(record))
    marks = site.browser.execute_script(
        "return [...document.querySelectorAll('.timings .mark')].map(mark => {"
        "const middle = mark.querySelector('circle').getBoundingClientRect(),"
        " spread = mark.querySelector('.spread').getBoundingClientRect();"
        "return {title: mark.querySelector('title').textContent, x: middle.x + middle.width / 2,"
        " y: middle.y, low: spread.left, high: spread.right,"
        " color: getComputedStyle(mark.querySelector('circle')).fill}})"
    )
    timed = sorted((each for each in record.configs if each.timed), key=lambda each: each.median_us)
    assert [mark["title"].split(":")[0] for mark in marks] == [each.text for each in timed]
    assert [mark["y"] for mark in marks] == sorted(mark["y"] for mark in marks)
    # Two marks fix the scale; all the others must agree with it.
    first, last = timed[0].median_us, timed[-1].median_us
    scale = (marks[-1]["x"] - marks[0]["x"]) / (last - first)
    for mark, each in zip(marks, timed, strict=True):
        for place, time_us in (
            ("x", each.median_us), ("low", each.p20_us), ("high", each.p80_us)
        ):  # fmt: skip
            assert abs(marks[0]["x"] + scale * (time_us - first) - mark[place]) < 1, (mark, place)
    colors = {mark["color"] for mark in marks if ", chosen" in mark["title"]}
    assert colors == {"rgb(26, 127, 55)"}
    assert record.winner.text in site.find("tr.chosen").text


def test_record_of_another_triton_is_one_link_away(site):
    site.open(path_of(a_record(SCAN, H200, 1)))
    site.click(next(each for each in site.all(".facts a") if each.text == "3.4.0"))
    site.wait_for(".facts b", "3.4.0")
    assert next(each.text for each in site.all(".facts a")) == "3.6.0"


def test_tables_sort_by_keyboard(site):
    site.open(path_of(a_record(SCAN, H200, 3)))
    head = next(each for each in site.all("th button") if each.text == "Median")
    for sign in (1, -1):
        site.click(head)
        times = [float(row[1].split()[0]) for row in site.table() if row[1] != "-"]
        assert len(times) == 7
        assert times == sorted(times, key=lambda time: sign * time)


def test_misses_come_by_how_often(site):
    rows = site.open("/web/default/misses").table()
    assert [(row[1], row[4], row[5]) for row in rows] == [
        (A100.slug, "absent", "5"), (H200.slug, "toolchain", "4"),
        (A100.slug, "absent", "2"), (A100.slug, "absent", "1"),
    ]  # fmt: skip
    widths = [float(each.get_attribute("width")) for each in site.all(".share .part")]
    assert widths == [120, 96, 48, 24]


def test_leases_say_who_tunes_what_and_a_reader_cannot_end_one(site):
    ((state, kernel, key, holder, *_),) = site.open("/web/default/leases").table()
    assert (state, kernel, key, holder) == ("in force", COPY.name, "n=901", "gpu-7 pid 4242")
    assert site.all("main form") == []


def test_audit_says_who_wrote_what_and_filters(site):
    site.open("/web/default/audit")
    writer = site.table()[0][1]
    assert writer.startswith("write (")
    assert {row[2] for row in site.table()} == {"create"}
    assert len(site.table()) == 71
    site.find("#kernel").send_keys(COPY.name + "\n")
    site.wait_for("main tbody", COPY.name)
    assert [row[1] for row in site.table()] == [writer]


def test_two_devices_are_compared_by_what_the_second_measured(site):
    site.open("/web/default/diff")
    for name, device in (("a", H200), ("b", A100)):
        option = site.find(f"#{name} option[value='{device.slug}']")
        site.browser.execute_script("arguments[0].selected = true", option)
    site.click(site.find("#compare-devices"))
    site.wait_for("#sum", "same winner")
    assert site.find("#sum").text.startswith("4 keys have the same winner, 4 another one; 55 only")
    ratios = {row[1].split()[0]: row[7] for row in site.table()}
    expected = {}
    for n in (1, 3, 5, 7):
        there = a_record(SCAN, A100, n, fastest=64)
        here = a_record(SCAN, H200, n)
        (old,) = (each for each in there.configs if each.config == here.chosen)
        expected[f"n={n}"] = f"{there.winner.median_us / old.median_us:.3f}"
    assert ratios == expected


def test_writer_takes_a_snapshot_and_compares_it_with_now(site, served):
    site.log_in(token(served, "write", "default"))
    site.open("/web/default/snapshots")
    site.click(site.find("main form button"))
    site.wait_for("main tbody", "71")
    record = a_record(COPY, H200, 8)
    assert served.put(record, **served.token("write")).status_code == 201
    site.click(next(each for each in site.all("tbody a") if each.text == "with now"))
    site.wait_for("#sum", "71 keys have the same winner, 0 another one")
    assert [row[:2] for row in site.table()] == [[COPY.name, record.key.text]]
    site.browser.delete_all_cookies()


def test_pin_file_is_downloaded_and_opens_as_a_store(site, tmp_path):
    site.browser.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    site.open("/web/default/devices")
    row = next(each for each in site.all("tbody tr") if H200.name in each.text)
    row.find_element("partial link text", "pin file").click()
    deadline = time.monotonic() + 30
    while not (files := list(tmp_path.glob("*.lock"))) and time.monotonic() < deadline:
        time.sleep(0.05)
    pinned = list(launchkit.open_store(files[0]).records())
    assert {record.device for record in pinned} == {H200}
    assert {record.kernel.name for record in pinned} >= {COPY.name, SCAN.name}


def test_admin_ends_a_lease_and_makes_a_namespace(site, served):
    site.log_in(token(served, "admin", "*"))
    site.open("/")
    site.find("#name").send_keys("made-here\n")
    site.wait_for("h1", "made-here")
    asked = {"holder": "gpu-8", "ttl_s": 3600, "kernel": "<b>k</b>", "key": "n=1"}
    path = protocol.lease_path("made-here", "cd" * 16)
    headers = served.token("write", "made-here")
    assert served.http.post(path, json=asked, headers=headers).status_code in (200, 201)
    site.open("/web/made-here/leases")
    site.click(site.find("main form button"))
    site.wait_for("main", "Nothing is being tuned")
    site.open("/web/made-here/audit")
    assert [row[2] for row in site.table()] == ["end-lease", "make-namespace"]
    site.browser.delete_all_cookies()


@pytest.mark.parametrize("path", ["", "/kernels", "/records", "/audit", "/snapshots", "/diff"])
def test_every_link_and_field_is_reached_by_tab_in_the_order_of_the_page(site, path):
    site.open(f"/web/default{path}")
    focusable = site.browser.execute_script(
        "window.walked = []; document.addEventListener('focusin', event => walked.push(event.target));"
        "return [...document.querySelectorAll('a[href], button, input:not([type=hidden]), select')]"
        ".slice(0, 40).length"
    )
    site.press(*["\ue004"] * focusable)
    in_order = site.browser.execute_script(
        "const all = [...document.querySelectorAll("
        "'a[href], button, input:not([type=hidden]), select')].slice(0, arguments[0]);"
        "return all.every((each, at) => each === walked[at])",
        focusable,
    )
    assert in_order
    assert site.browser.execute_script("return walked[0].textContent") == "Skip to content"


def test_page_asks_no_other_host_for_anything(site):
    for path in ("/", "/web/default", path_of(a_record(SCAN, H200, 3))):
        site.open(path)
        loaded = site.browser.execute_script(
            "return performance.getEntriesByType('resource').map(each => each.name)"
        )
        assert sorted(urlsplit(each).path.rpartition("/")[2] for each in loaded) == [
            "page.css", "page.js",
        ]  # fmt: skip
        assert {f"http://{urlsplit(each).netloc}" for each in loaded} == {site.base}


def test_nothing_is_wider_than_a_narrow_window_but_what_scrolls_by_itself(site):
    site.browser.set_window_size(520, 900)
    for path in ("", "/records", "/audit", "/diff"):
        site.open(f"/web/default{path}")
        wide = site.browser.execute_script(
            "return [...document.querySelectorAll('body *')].filter(each => !each.closest('.wide,"
            " .skip, .hidden') && each.getBoundingClientRect().right > innerWidth + 1)"
            ".map(each => each.outerHTML.slice(0, 120))"
        )
        assert wide == [], path


def test_page_follows_a_dark_scheme(site):
    site.open(path_of(a_record(SCAN, H200, 3)))
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    site.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    colors = site.browser.execute_script(
        "return [getComputedStyle(document.body).backgroundColor,"
        " getComputedStyle(document.querySelector('.timings text')).fill]"
    )
    site.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert colors == ["rgb(20, 23, 27)", "rgb(154, 164, 177)"]


def test_what_is_not_there_or_not_allowed_is_said_in_a_page(site, expected_errors):
    expected_errors += ["status of 403", "status of 404", "status of 422"]
    for path, told in (
        ("/web/secret", "does not allow read"), ("/web/default/records?p=0", "Go back"),
        ("/web/default/nothing", "no such page"), (path_of(a_record(COPY, A100, 901)), "no such"),
    ):  # fmt: skip
        assert told in site.open(path).find("[role=alert]").text
