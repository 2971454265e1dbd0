// Lets a reader sort every table by a column, and take it along as CSV. Without scripts a table stays as it came.
"use strict";
(() => {
  const text = (cell) => (cell ? cell.innerText.replace(/\s+/g, " ").trim() : "");
  const digits = (words) => words.replace(/[\s\u202f\u00a0,](?=\d{3})/g, "");

  // A number where a cell begins with one ("1 of shop", "12 %"), the words elsewhere; what is missing comes last.
  const value = (cell) => {
    const words = text(cell), found = /^[−-]?\d+(\.\d+)?(e[+-]?\d+)?/i.exec(digits(words));
    return found && !/^\d{4}-\d\d-\d\d/.test(words) ? Number(found[0].replace("−", "-")) : words;
  };
  const order = (one, other) => {
    const empty = (each) => each === "" || each === "–";
    if (empty(one) || empty(other)) return empty(one) - empty(other);
    if (typeof one === typeof other) return typeof one === "number" ? one - other : one.localeCompare(other);
    return typeof one === "number" ? -1 : 1;
  };

  const sort = (table, head, at) => {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    for (const body of table.tBodies) {
      const rows = [...body.rows].map((row) => [value(row.cells[at]), row]);
      rows.sort(([one], [other]) => (down && one !== "" && other !== "" ? order(other, one) : order(one, other)));
      body.append(...rows.map(([, row]) => row));
    }
  };

  // A spreadsheet takes what begins with one of these for a formula; names in a table may come from elsewhere.
  const quoted = (words) => `"${(/^[=+@\t]|^-(?!\d)/.test(words) ? `'${words}` : words).replaceAll('"', '""')}"`;
  // An id that the page cuts short is whole in the address that it leads to.
  const whole = (cell) => {
    const link = [...cell.querySelectorAll("a")].find((each) => text(each).endsWith("…"));
    const id = link && decodeURIComponent(link.href.split(/[?#]/)[0].split("/").pop());
    return id ? text(cell).replace(/\S+…/, id) : text(cell);
  };
  const csv = (table) =>
    [...table.rows].map((row) => [...row.cells].map((cell) => quoted(whole(cell))).join(",")).join("\r\n") + "\r\n";

  const save = (table) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(["\ufeff", csv(table)], { type: "text/csv" }));
    link.download = `${(text(table.caption) || document.title.split(" · ")[0]).slice(0, 60)}.csv`;
    link.click();
    window.setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };

  const enrich = (table) => {
    if (table.dataset.rich || !table.tHead || !table.tBodies.length || !table.rows.length) return;
    table.dataset.rich = "1";
    // on a phone a row is a card and heads are out of sight
    const sortable = table.tBodies[0].rows.length > 1 && getComputedStyle(table.tHead).position !== "absolute";
    [...table.tHead.rows[0].cells].forEach((head, at) => {
      const marks = table.tBodies[0].rows[0].cells[at]?.querySelector("input"); // a column of boxes has no order
      if (!sortable || !text(head) || marks || head.querySelector("a, button")) return;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sort(table, head, at));
      head.append(button);
    });
    const take = document.createElement("button");
    take.type = "button";
    take.className = "quiet csv";
    take.textContent = "CSV";
    take.setAttribute("aria-label", `Save as CSV: ${text(table.caption) || "this table"}`);
    take.addEventListener("click", () => save(table));
    (table.closest(".scroll") || table).after(take);
  };

  const all = () => document.querySelectorAll("main table:not(.calendar)").forEach(enrich);
  all();
  new MutationObserver(all).observe(document.getElementById("content"), { childList: true, subtree: true });
})();
