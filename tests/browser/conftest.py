"""One headless Chromium for all tests of pages; none of them may leave an error in its console."""

from __future__ import annotations

import shutil

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
_ARGUMENTS = (
    "headless=new",
    "no-sandbox",
    "disable-gpu",
    "disable-dev-shm-usage",
    "window-size=1400,1000",
    # Pages come from files and from this machine: nothing else can be reached, or goes unseen.
    "host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


@pytest.fixture(scope="session")
def browser():
    """A Chromium that knows no other host than this one."""
    if not CHROMIUM or not DRIVER:
        pytest.skip("chromium and chromedriver are not installed")
    selenium = pytest.importorskip("selenium", reason="selenium is in the extra test")
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = CHROMIUM
    for argument in _ARGUMENTS:
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = selenium.webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_page_load_timeout(60)
    driver.set_script_timeout(30)
    yield driver
    driver.quit()


@pytest.fixture(autouse=True)
def expected_errors(request):
    """What a test expects in the console, in parts of its messages; anything else there fails it.

    A page that is refused on purpose leaves one: Chromium tells of every status above 399.
    """
    expected: list[str] = []
    yield expected
    if "browser" not in request.fixturenames:
        return
    logged = request.getfixturevalue("browser").get_log("browser")
    messages = [entry["message"] for entry in logged if entry["level"] != "INFO"]
    assert [each for each in messages if not any(part in each for part in expected)] == []
