"""The config service's page as somebody sees it who is logged in, in a browser."""

from __future__ import annotations

from urllib.parse import urlsplit


class Site:
    """Opens pages, finds what is in them, and presses keys."""

    def __init__(self, browser, served):
        self.browser, self.served = browser, served
        self.base = str(served.http.base_url).rstrip("/")

    def open(self, path):
        self.browser.get(self.base + path)
        return self

    def log_in(self, secret):
        self.browser.delete_all_cookies()
        self.open("/login")
        self.find("#token").send_keys(secret + "\n")
        self.wait_for("h1", "Namespaces")

    def find(self, selector):
        return self.browser.find_element("css selector", selector)

    def all(self, selector):
        return self.browser.find_elements("css selector", selector)

    def wait_for(self, selector, text):
        from selenium.common.exceptions import StaleElementReferenceException
        from selenium.webdriver.support.ui import WebDriverWait

        waiting = WebDriverWait(
            self.browser, 30, 0.02, ignored_exceptions=[StaleElementReferenceException]
        )
        waiting.until(lambda _: any(text in each.text for each in self.all(selector)))

    def click(self, element):
        """Click as a person at the keyboard: focus, then Enter."""
        self.browser.execute_script("arguments[0].focus()", element)
        self.press("\n")

    def press(self, *keys):
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.browser).send_keys(*keys).perform()

    def path(self):
        return urlsplit(self.browser.current_url).path

    def table(self, number=0):
        """The texts of a table's cells."""
        return self.browser.execute_script(
            "return [...document.querySelectorAll('main table')[arguments[0]].tBodies[0].rows]"
            ".map(row => [...row.cells].map(cell => cell.innerText.trim()))",
            number,
        )
