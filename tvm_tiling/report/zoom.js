/* Timelines that zoom: each replaces the drawing beside its data, which stays for paper and for browsers without scripts. */
"use strict";
(() => {
  const ROW = 22, BAR = 15, AXIS = 22, LEAST_LABEL = 34; // pixels
  const SCALES = [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];

  const scaled = (value, unit, digits) => {
    if (value === 0) return `0 ${unit}`.trim();
    const [factor, prefix] = SCALES.find(([each]) => Math.abs(value) >= each * 0.9995) || SCALES[SCALES.length - 1];
    return `${Number((value / factor).toPrecision(digits))} ${prefix}${unit}`.trim();
  };

  const make = (name, attributes, ...children) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };

  class Timeline {
    constructor(source) {
      this.data = JSON.parse(source.textContent);
      this.figure = source.closest("figure");
      this.from = 0;
      this.to = this.data.end;
      this.canvas = make("canvas", { tabindex: "0", role: "img", "aria-label": `${this.data.title}: arrow keys move, + and - zoom, 0 shows all` });
      this.where = make("output", { class: "faint" });
      const button = (text, label, act) => {
        const found = make("button", { type: "button", "aria-label": label, title: label }, text);
        found.addEventListener("click", act);
        return found;
      };
      const tools = make("div", { class: "tools" },
        button("−", "Zoom out", () => this.zoom(2)),
        button("+", "Zoom in", () => this.zoom(0.5)),
        button("All", "Show all", () => this.show(0, this.data.end)),
        this.where);
      this.tip = document.getElementById("tip");
      this.figure.querySelector(".static").before(tools, this.canvas);
      this.figure.classList.add("live");
      this.pointers = new Map();
      this.listen();
      this.measure();
    }

    listen() {
      const canvas = this.canvas;
      canvas.addEventListener("wheel", (event) => {
        if (!event.ctrlKey && !event.shiftKey && document.activeElement !== canvas) return; // the page scrolls
        event.preventDefault();
        if (event.shiftKey) this.move((event.deltaX || event.deltaY) / this.across());
        else this.zoom(Math.exp(event.deltaY / 300), this.timeAt(event.offsetX));
      }, { passive: false });
      canvas.addEventListener("pointerdown", (event) => {
        this.pointers.set(event.pointerId, event.offsetX);
        canvas.setPointerCapture(event.pointerId);
      });
      canvas.addEventListener("pointermove", (event) => this.pointed(event));
      for (const end of ["pointerup", "pointercancel"])
        canvas.addEventListener(end, (event) => this.pointers.delete(event.pointerId));
      canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
      canvas.addEventListener("dblclick", (event) => this.zoom(0.4, this.timeAt(event.offsetX)));
      canvas.addEventListener("keydown", (event) => {
        const act = {
          ArrowLeft: () => this.move(-0.2), ArrowRight: () => this.move(0.2),
          "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2),
          0: () => this.show(0, this.data.end), Home: () => this.show(0, this.data.end),
        }[event.key];
        if (!act) return;
        event.preventDefault();
        act();
      });
      new ResizeObserver(() => this.measure()).observe(this.figure);
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    }

    pointed(event) {
      const before = this.pointers.get(event.pointerId);
      if (before === undefined) return this.explain(event);
      const span = this.to - this.from;
      if (this.pointers.size === 2) {
        const [other] = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, x]) => x);
        const wide = Math.abs(event.offsetX - other), was = Math.abs(before - other);
        if (wide > 5 && was > 5) this.zoom(was / wide, this.timeAt((event.offsetX + other) / 2));
      } else {
        this.show(this.from - (event.offsetX - before) / this.across() * span, this.to - (event.offsetX - before) / this.across() * span);
      }
      this.pointers.set(event.pointerId, event.offsetX);
    }

    across() { return Math.max(40, this.canvas.clientWidth - this.left); }
    timeAt(x) { return this.from + (x - this.left) / this.across() * (this.to - this.from); }
    move(share) {
      const by = share * (this.to - this.from);
      this.show(this.from + by, this.to + by);
    }
    zoom(factor, at = (this.from + this.to) / 2) {
      const span = Math.min(this.data.end, Math.max(this.data.least, (this.to - this.from) * factor));
      const share = (at - this.from) / (this.to - this.from);
      this.show(at - share * span, at + (1 - share) * span);
    }
    show(from, to) {
      const span = Math.min(this.data.end, to - from);
      this.from = Math.max(0, Math.min(from, this.data.end - span));
      this.to = this.from + span;
      this.draw();
    }

    measure() {
      const wide = this.figure.clientWidth;
      if (!wide) return;
      const high = this.data.rows.length * ROW + AXIS, ratio = devicePixelRatio || 1;
      this.left = Math.min(150, wide * 0.28);
      this.canvas.style.height = `${high}px`;
      this.canvas.width = Math.round(wide * ratio);
      this.canvas.height = Math.round(high * ratio);
      this.draw();
    }

    /* The first span of a row that ends behind `time`. */
    firstAfter(spans, time) {
      let low = 0, high = spans.length / 4;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (spans[4 * middle] + spans[4 * middle + 1] <= time) low = middle + 1;
        else high = middle;
      }
      return low;
    }

    draw() {
      const context = this.canvas.getContext("2d"), style = getComputedStyle(this.figure), ratio = devicePixelRatio || 1;
      const { rows, names, unit, factor } = this.data, wide = this.canvas.width / ratio, span = this.to - this.from;
      const value = (name) => style.getPropertyValue(name);
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.clearRect(0, 0, wide, this.canvas.height / ratio);
      context.font = "12px system-ui, sans-serif";
      context.textBaseline = "middle";
      rows.forEach((row, place) => {
        const top = place * ROW, spans = row.spans;
        context.globalAlpha = 1;
        context.fillStyle = value("--text");
        context.fillText(this.fitted(context, row.name, this.left - 8), 0, top + BAR / 2 + 1);
        context.fillStyle = value("--raised");
        context.fillRect(this.left, top, this.across(), BAR);
        let drawn = this.left;
        for (let n = this.firstAfter(spans, this.from); 4 * n < spans.length && spans[4 * n] < this.to; ++n) {
          const start = spans[4 * n], length = spans[4 * n + 1], name = spans[4 * n + 2], shade = spans[4 * n + 3];
          const x = Math.max(this.left, this.left + (start - this.from) / span * this.across());
          const end = Math.min(wide, this.left + (start + length - this.from) / span * this.across());
          if (end < drawn + 0.4 && end - x < 0.4) continue; // below half a pixel, beside one that is drawn
          const own = row.colors ? row.colors[name] : row.color;
          context.globalAlpha = shade / 8;
          context.fillStyle = value(own < 12 ? `--c${own}` : "--c7");
          context.fillRect(x, top, Math.max(end - x - (end - x > 3 ? 0.5 : 0), 0.6), BAR);
          drawn = end;
          if (end - x > LEAST_LABEL && names[name] && shade === 8) {
            context.globalAlpha = 1;
            context.fillStyle = value("--ground");
            context.fillText(this.fitted(context, names[name], end - x - 6), x + 3, top + BAR / 2 + 1);
          }
        }
      });
      this.drawAxis(context, value, rows.length * ROW, wide, span, unit, factor);
      const ends = [this.from, this.to].map((end) => scaled(end * factor, unit, 4)).join(" to ");
      this.where.textContent = unit ? ends : `${ends} cycles`;
    }

    drawAxis(context, value, top, wide, span, unit, factor) {
      const rough = span * factor / Math.max(2, Math.floor(this.across() / 110)), power = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
      context.globalAlpha = 1;
      context.fillStyle = value("--faint");
      for (let mark = Math.ceil(this.from * factor / step) * step; mark <= this.to * factor; mark += step) {
        const x = this.left + (mark / factor - this.from) / span * this.across();
        const text = scaled(Number(mark.toPrecision(12)), unit, 6);
        context.fillRect(x, top - 4, 1, 4);
        context.fillText(text, Math.min(x, wide - context.measureText(text).width), top + 10);
      }
    }

    fitted(context, text, room) {
      if (context.measureText(text).width <= room) return text;
      let length = text.length;
      while (length > 1 && context.measureText(`${text.slice(0, length)}…`).width > room) length -= 1;
      return length > 1 ? `${text.slice(0, length)}…` : "";
    }

    explain(event) {
      const row = this.data.rows[Math.floor(event.offsetY / ROW)], time = this.timeAt(event.offsetX);
      const n = row && event.offsetX >= this.left ? this.firstAfter(row.spans, time) : -1;
      if (n < 0 || 4 * n >= row.spans.length || row.spans[4 * n] > time) {
        this.tip.hidden = true;
        return;
      }
      const [start, length, name, shade] = row.spans.slice(4 * n, 4 * n + 4), { names, unit, factor } = this.data;
      const told = names[name] ? `${names[name]}\n` : shade < 8 ? `about ${Math.round(shade * 12.5)}%\n` : "";
      const text = `${row.name}: ${told}from ${scaled(start * factor, unit, 6)}, ${scaled(length * factor, unit, 4)}`;
      window.tvmTilingTip(text, event.clientX, event.clientY);
    }
  }

  /* ---- graphs: wider and narrower; a step that is chosen shows its edges --------------------------------------- */

  for (const figure of document.querySelectorAll("figure.graph")) {
    const pane = figure.querySelector(".pane"), svg = pane.querySelector("svg"), whole = svg.viewBox.baseVal.width;
    let scale = 1;
    const show = (next) => {
      const across = (pane.scrollLeft + pane.clientWidth / 2) / scale, down = (pane.scrollTop + pane.clientHeight / 2) / scale;
      scale = Math.max(0.1, Math.min(3, next));
      svg.style.width = `${Math.round(whole * scale)}px`;
      pane.scrollLeft = across * scale - pane.clientWidth / 2;
      pane.scrollTop = down * scale - pane.clientHeight / 2;
    };
    const button = (text, label, act) => {
      const found = make("button", { type: "button", "aria-label": label, title: label }, text);
      found.addEventListener("click", act);
      return found;
    };
    const fit = () => {
      const box = svg.viewBox.baseVal;
      show(Math.min(1, (pane.clientWidth - 2) / whole, Math.max(0.3, (pane.clientHeight - 2) / box.height)));
    };
    pane.before(make("div", { class: "tools" },
      button("−", "Smaller", () => show(scale / 1.4)), button("+", "Larger", () => show(scale * 1.4)),
      button("Fit", "Fit into the window", fit), button("1:1", "Natural size", () => show(1))));
    svg.addEventListener("click", (event) => {
      const step = event.target.closest(".step"), number = step && step.dataset.step, was = step && step.classList.contains("on");
      for (const each of svg.querySelectorAll(".on")) each.classList.remove("on");
      if (!step || was) return;
      step.classList.add("on");
      for (const edge of svg.querySelectorAll(".edge")) {
        if (edge.dataset.from !== number && edge.dataset.to !== number) continue;
        edge.classList.add("on");
        const other = edge.dataset.from === number ? edge.dataset.to : edge.dataset.from;
        svg.querySelector(`.step[data-step="${other}"]`)?.classList.add("on");
      }
    });
  }

  for (const source of document.querySelectorAll("script.timeline")) new Timeline(source);
})();
