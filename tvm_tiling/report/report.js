/* What makes a page interactive: sorting and filtering of tables, explanations of terms, zooming. The page has all of its
   content without this script. */
"use strict";
(() => {
  const make = (name, attributes, ...children) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {}))
      key.startsWith("on") ? element.addEventListener(key.slice(2), value) : element.setAttribute(key, value);
    element.append(...children);
    return element;
  };

  /* ---- tables: a click on a heading sorts, a field above long ones filters --------------------------------------- */

  const FILTERED_FROM = 10; // rows
  const compareTexts = new Intl.Collator("en", { numeric: true }).compare;

  const numberOf = (text) => {
    const plain = text.replace(/[\u202f,\s]/g, "").replace("−", "-");
    return /^[-+±]?[\d.]+(e[-+]?\d+)?(%|×)?$/.test(plain) ? parseFloat(plain.replace("±", "")) : NaN;
  };

  const sortBy = (table, column, descending) => {
    const body = table.tBodies[0];
    const keyed = [...body.rows].map((row) => {
      const text = row.cells[column].textContent.trim();
      return { row, text, number: numberOf(text), missing: text === "" || text === "–" };
    });
    const sign = descending ? -1 : 1;
    const figures = keyed.every((each) => each.missing || !Number.isNaN(each.number));
    keyed.sort((one, other) => {
      if (one.missing !== other.missing) return one.missing ? 1 : -1; // what is missing comes last either way
      if (one.missing) return 0;
      return sign * (figures ? one.number - other.number : compareTexts(one.text, other.text));
    });
    body.append(...keyed.map((each) => each.row));
    [...table.tHead.rows[0].cells].forEach((heading, place) => {
      if (place === column) heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
      else heading.removeAttribute("aria-sort");
    });
  };

  const makeSortable = (table) => {
    [...table.tHead.rows[0].cells].forEach((heading, column) => {
      heading.tabIndex = 0;
      heading.classList.add("sorts");
      const sort = () => {
        const was = heading.getAttribute("aria-sort");
        // Figures begin with the largest, words with the first.
        sortBy(table, column, was ? was === "ascending" : heading.classList.contains("n"));
      };
      heading.addEventListener("click", sort);
      heading.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        sort();
      });
    });
  };

  const makeFilterable = (table) => {
    const rows = [...table.tBodies[0].rows];
    if (rows.length < FILTERED_FROM || rows[0].cells.length < 3) return;
    const shown = make("output", { class: "faint" });
    const field = make("input", { type: "search", placeholder: "Filter rows", "aria-label": "Filter rows" });
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      let left = 0;
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        left += !row.hidden;
      }
      shown.textContent = words.length ? `${left} of ${rows.length} rows` : "";
    });
    table.closest(".wide").before(make("div", { class: "filter" }, field, shown));
  };

  for (const table of document.querySelectorAll("table.data")) {
    makeSortable(table);
    makeFilterable(table);
  }

  /* ---- terms: explained when they are pointed at, tapped or focused ---------------------------------------------- */

  const tip = make("div", { class: "tip", role: "tooltip", id: "tip", hidden: "" });
  document.body.append(tip);

  const showTip = (text, x, y) => {
    tip.textContent = text;
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const left = Math.max(8, Math.min(x + 12, innerWidth - width - 8));
    const top = y + 18 + height > innerHeight ? Math.max(8, y - height - 12) : y + 18;
    tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
  };
  window.tvmTilingTip = showTip; // for timelines and graphs
  const hideTip = () => { tip.hidden = true; };

  for (const term of document.querySelectorAll("abbr[title]")) {
    const text = term.title;
    term.removeAttribute("title"); // or the browser shows its own as well
    term.dataset.told = text;
    term.setAttribute("aria-describedby", "tip");
    if (!term.closest("th")) term.tabIndex = 0;
    const below = () => {
      const place = term.getBoundingClientRect();
      showTip(text, place.left, place.bottom - 14);
    };
    term.addEventListener("pointerenter", below);
    term.addEventListener("pointerleave", hideTip);
    term.addEventListener("focus", below);
    term.addEventListener("blur", hideTip);
    const heading = term.closest("th");
    if (heading) {
      heading.addEventListener("focus", () => heading.matches(":focus-visible") && below());
      heading.addEventListener("blur", hideTip);
    }
  }
  addEventListener("scroll", hideTip, { passive: true });
  addEventListener("keydown", (event) => event.key === "Escape" && hideTip());
})();
