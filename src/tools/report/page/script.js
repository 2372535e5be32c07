"use strict";
// Values under the pointer or by arrow keys, read out of the table below a chart, and smoothed lines.
(() => {
  const NS = "http://www.w3.org/2000/svg";
  const make = (name, attributes, parent) => {
    const e = name === "line" || name === "path" ? document.createElementNS(NS, name) : document.createElement(name);
    for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
    return parent.appendChild(e);
  };
  const valueOf = (cell) => Number(cell.dataset.v ?? cell.textContent);

  // The rows of a figure's tables, with their places on the x axis.
  const groupsOf = (figure) => [...figure.querySelectorAll("table")].flatMap((table) => {
    const heads = [...table.querySelectorAll("thead th")];
    const names = heads.map((h) => h.dataset.name);
    const x = Math.max(0, ["step", "applied_steps", "epoch"].map((n) => names.indexOf(n)).find((i) => i >= 0) ?? 0);
    return [...table.tBodies].map((body) => {
      const rows = [...body.rows].filter((r) => !r.className);
      return { label: table.tBodies.length > 1 ? body.dataset.label : "", titles: heads.map((h) => h.textContent.trim()),
               x, rows, at: rows.map((r) => valueOf(r.cells[x])) };
    });
  }).filter((g) => g.rows.length);

  const nearest = (at, x) => {
    let low = 0, high = at.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (at[middle] <= x) low = middle; else high = middle;
    }
    return Math.abs(at[low] - x) <= Math.abs(at[high] - x) ? low : high;
  };
  const say = (group, i) => {
    const cells = [...group.rows[i].cells].map((c) => c.textContent.trim());
    const rest = group.titles.map((t, k) => k === group.x ? "" : `${t} ${cells[k]}`).filter((t) => t);
    return `${group.label ? group.label + ", " : ""}${group.titles[group.x]} ${cells[group.x]}: ${rest.join(", ")}`;
  };

  const follow = (figure) => {
    const svg = figure.querySelector("svg"), plot = figure.querySelector(".plot"), d = svg.dataset;
    const [left, right] = [Number(d.l), Number(d.r)], [x0, x1] = [Number(d.x0), Number(d.x1)];
    const bars = "bars" in figure.dataset;
    const out = make("p", { class: "readout", role: "status" }, figure);
    plot.after(out);
    plot.tabIndex = 0;
    plot.setAttribute("role", "group");
    plot.setAttribute("aria-label", figure.querySelector("h3").textContent + ". Left and right keys read values.");
    let groups = null, cursor = null, index = -1;
    const rowsOfAll = () => groups.flatMap((g) => g.rows.map((_, i) => [g, i]));
    const show = (place, text) => {
      cursor ??= make("line", { class: "cursor", y1: d.t, y2: d.b }, svg);
      cursor.setAttribute("x1", place);
      cursor.setAttribute("x2", place);
      out.textContent = text;
    };
    const showBar = (i) => {
      const all = rowsOfAll();
      index = Math.max(0, Math.min(all.length - 1, i));
      show(left + (right - left) * (index + 0.5) / all.length, say(...all[index]));
    };
    const showAt = (x) => {
      const found = groups.map((g) => [g, nearest(g.at, x)]);
      const [g, i] = found.reduce((a, b) => Math.abs(a[0].at[a[1]] - x) <= Math.abs(b[0].at[b[1]] - x) ? a : b);
      index = groups[0] === g ? i : nearest(groups[0].at, g.at[i]);
      show(left + (right - left) * (g.at[i] - x0) / (x1 - x0), found.map((f) => say(...f)).join("; "));
    };
    const ready = () => (groups ??= groupsOf(figure)).length > 0;
    svg.addEventListener("pointermove", (event) => {
      if (!ready()) return;
      const box = svg.getBoundingClientRect();
      const place = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
      const share = Math.max(0, Math.min(1, (place - left) / (right - left)));
      if (bars) showBar(Math.floor(share * rowsOfAll().length)); else showAt(x0 + share * (x1 - x0));
    });
    plot.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20, Home: -1e9, End: 1e9 }[event.key];
      if (!step || !ready()) return;
      event.preventDefault();
      const next = index + step;
      if (bars) showBar(next);
      else {
        const at = groups[0].at, i = Math.max(0, Math.min(at.length - 1, next));
        showAt(at[i]);
        index = i;
      }
    });
  };

  // An exponential moving average of the drawn line, by the share that the past keeps.
  const smooth = (figure) => {
    const lines = [...figure.querySelectorAll("path.mean")].filter((p) => p.getAttribute("d").split(" ").length > 4);
    if (!lines.length) return;
    const label = make("label", { class: "slider" }, figure.querySelector("figcaption"));
    label.append("Smoothing");
    const input = make("input", { type: "range", min: 0, max: 0.98, step: 0.02, value: 0 }, label);
    const over = lines.map((line) => make("path", { class: line.getAttribute("class") + " smooth" }, line.parentNode));
    input.addEventListener("input", () => {
      const keep = Number(input.value);
      lines.forEach((line, n) => {
        line.classList.toggle("faint", keep > 0);
        if (!(keep > 0)) return over[n].setAttribute("d", "");
        let mean = 0, weight = 0, path = "M";
        const numbers = line.getAttribute("d").match(/-?[\d.]+/g);
        for (let i = 0; i + 1 < numbers.length; i += 2) {
          mean = keep * mean + (1 - keep) * Number(numbers[i + 1]);
          weight = keep * weight + 1 - keep;
          path += `${numbers[i]} ${(mean / weight).toFixed(1)} `;
        }
        over[n].setAttribute("d", path);
      });
    });
  };

  for (const figure of document.querySelectorAll("figure")) {
    follow(figure);
    if ("smooth" in figure.dataset) smooth(figure);
  }
})();
