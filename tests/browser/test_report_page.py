"""The report's page in a real Chromium: plots that can be seen, no error, no network."""

from __future__ import annotations

import captures
import pytest
from timelines import small_timeline

from launchkit.profiling.report.document import report_document
from launchkit.profiling.report.html import html_report
from launchkit.profiling.timeline import analyse, read_timeline


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    """The page of a sample and of a small timeline, opened by its file URL."""
    timelines = (read_timeline(captures.nsys_sample()), small_timeline())
    documents = [report_document(analyse(timeline)) for timeline in timelines]
    path = tmp_path_factory.mktemp("page") / "a report #1 ?.html"
    path.write_text(html_report(documents), encoding="utf-8")
    browser.get(path.as_uri())
    return browser


def rows(page, number):
    """The cells of the ``number``-th table, top to bottom."""
    return page.execute_script(
        "return [...document.querySelectorAll('table')[arguments[0]].tBodies[0].rows]"
        ".map(row => [...row.cells].map(cell => cell.textContent))",
        number,
    )


def heads(page, number):
    return page.execute_script(
        "return [...document.querySelectorAll('table')[arguments[0]].tHead.rows[0].cells]", number
    )


def test_every_plot_is_drawn_and_can_be_seen(page) -> None:
    plots = page.execute_script(
        "return [...document.querySelectorAll('.plot')].map(plot => ({id: plot.id,"
        " box: plot.querySelector('svg.main-svg').getBoundingClientRect().toJSON(),"
        " marks: [...plot.querySelectorAll('.barlayer path, .scatterlayer path.js-line')]"
        "   .filter(mark => {const box = mark.getBoundingClientRect();"
        "                    return Math.max(box.width, 1) * Math.max(box.height, 1) > 4;}).length}))"
    )
    names = ["host-time", "idle", "latency", "steps"]
    assert [plot["id"] for plot in plots] == [f"{name}-{at}" for at in (0, 1) for name in names]
    for plot in plots:
        assert plot["box"]["width"] > 300, plot
        assert plot["box"]["height"] > 200, plot
        assert plot["marks"] >= 1, plot


def test_plots_are_painted_in_their_colors(page) -> None:
    """What is in the document may still be covered: the pixels are looked at."""
    plot = page.find_element("id", "latency-0")
    page.execute_script("arguments[0].scrollIntoView()", plot)
    picture = page.execute_async_script(
        "const [plot, done] = arguments; Plotly.toImage(plot, {format: 'png', width: 600, height: 300})"
        ".then(url => {const image = new Image(); image.onload = () => {"
        "const canvas = document.createElement('canvas'); canvas.width = 600; canvas.height = 300;"
        "const context = canvas.getContext('2d'); context.drawImage(image, 0, 0);"
        "const data = context.getImageData(0, 0, 600, 300).data; const seen = {};"
        "for (let at = 0; at < data.length; at += 4) {"
        "const color = [...data.slice(at, at + 3)].join(); seen[color] = (seen[color] || 0) + 1;}"
        "done(seen);}; image.src = url;}, error => done(String(error)))",
        plot,
    )
    steady, stalled = "76,120,168", "228,87,86"
    assert picture.get(steady, 0) > 500
    assert picture.get(stalled, 0) > 500


def test_buttons_of_plots_can_be_seen_and_none_of_them_sends_a_plot_away(page) -> None:
    buttons = page.execute_script(
        "return [...document.querySelectorAll('#idle-0 .modebar-btn')].map(button => ({"
        " title: button.dataset.title,"
        " fill: getComputedStyle(button.querySelector('path')).fill}))"
    )
    titles = {button["title"] for button in buttons}
    assert {"Zoom", "Pan", "Reset axes"} <= titles
    assert not [title for title in titles if "share" in title.lower() or "cloud" in title.lower()]
    assert {button["fill"] for button in buttons} == {"rgba(128, 128, 128, 0.6)", "rgb(27, 31, 36)"}


def test_nothing_is_logged_and_nothing_is_asked_for(page) -> None:
    errors = [entry for entry in page.get_log("browser") if entry["level"] != "INFO"]
    assert errors == []
    loaded = page.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert [name for name in loaded if not name.startswith(("data:", "blob:"))] == []


def test_tables_sort_by_numbers_and_by_words(page) -> None:
    titles = [head.text.strip(" ▾▴") for head in heads(page, 0)]
    wall = titles.index("wall")
    button = heads(page, 0)[wall].find_element("tag name", "button")
    for sign in (-1, 1):
        page.execute_script("arguments[0].click()", button)
        values = [float(row[wall].replace(",", "")) for row in rows(page, 0) if row[wall]]
        assert values == sorted(values, key=lambda value: sign * value)
    page.execute_script(
        "arguments[0].click()", heads(page, 0)[0].find_element("tag name", "button")
    )
    names = [row[0] for row in rows(page, 0)]
    assert names[0] == "worker_mm"
    assert set(names) >= {"ssd_scan", "backpressure", "never closed"}


def test_a_name_with_markup_is_shown_as_it_is(page) -> None:
    assert "</script><b>µ" in page.find_element("tag name", "body").text


def test_page_follows_a_dark_scheme(page) -> None:
    before = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    emulated = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", emulated)
    after = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    font = page.execute_script(
        "return getComputedStyle(document.querySelector('#idle-0 .xtick text')).fill"
    )
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert (before, after) == ("rgb(255, 255, 255)", "rgb(20, 23, 27)")
    assert font == "rgb(230, 233, 238)"


def test_no_table_is_wider_than_a_narrow_window(page) -> None:
    page.set_window_size(600, 900)
    wide = page.execute_script(
        "return [...document.querySelectorAll('body *')].filter(each => !each.closest('.wide')"
        " && !each.closest('.plot') && each.getBoundingClientRect().right > innerWidth)"
        ".map(each => each.outerHTML.slice(0, 200))"
    )
    page.set_window_size(1400, 1000)
    assert wide == []
