// Sorting of tables and a key for the search. Every page works without this file.
"use strict";

function valueOf(row, column) {
  const cell = row.cells[column];
  const marked = cell.querySelector("[data-sort]");
  const text = (cell.dataset.sort ?? (marked ? marked.dataset.sort : cell.textContent)).trim();
  const number = Number(text.replace(/,|%$/g, ""));
  return text !== "" && Number.isFinite(number) ? number : text;
}

function compare(one, other) {
  if (typeof one === "number" && typeof other === "number") return one - other;
  if (typeof one !== typeof other) return typeof one === "number" ? -1 : 1;
  return one.localeCompare(other, "en", { numeric: true });
}

function sortBy(table, head) {
  const up = head.getAttribute("aria-sort") !== "ascending";
  for (const each of head.parentElement.cells) each.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => [valueOf(row, head.cellIndex), row]);
  rows.sort(([one], [other]) => (up ? compare(one, other) : compare(other, one)));
  body.append(...rows.map(([, row]) => row));
}

for (const table of document.querySelectorAll("table.sortable")) {
  for (const head of table.tHead.rows[0].cells) {
    if (!head.textContent.trim()) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => sortBy(table, head));
  }
}

document.addEventListener("keydown", (event) => {
  const search = document.getElementById("search");
  const typing = event.target.closest("input, select, textarea");
  if (event.key !== "/" || !search || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  search.focus();
});
