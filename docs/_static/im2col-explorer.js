// The walk of a TMA im2col load, to try out: a form, the image with the pixels that come, and the rows of the block.
// Plain JavaScript; it works from a file, too. The settings stand in the address, so that a link keeps them.

"use strict";

/**
 * The rows that a load brings. shape is [N, [H,] W, C]; start is [n, [h,] w]; the rest has an entry a spatial dimension.
 * Each row is {base, read}: the base position [n, [h,] w], and the pixel read or null where zeros are filled in.
 */
function im2colWalk({ shape, lower, upper, strides, start, offsets, pixels }) {
  const extents = shape.slice(1, -1);
  const base = start.slice();
  const rows = [];
  for (let row = 0; row < pixels; row++) {
    const pixel = base.slice(1).map((b, dim) => b + offsets[dim]);
    const inside = base[0] >= 0 && base[0] < shape[0] && pixel.every((p, dim) => p >= 0 && p < extents[dim]);
    rows.push({ base: base.slice(), read: inside ? [base[0], ...pixel] : null });
    let dim = extents.length - 1;
    for (; dim >= 0; dim--) {
      base[dim + 1] += strides[dim];
      if (base[dim + 1] <= extents[dim] - 1 + upper[dim]) break;
      base[dim + 1] = lower[dim];
    }
    if (dim < 0) base[0] += 1;
  }
  return rows;
}

const im2colExplorer = (() => {
  const names = { 1: ["w"], 2: ["h", "w"] };
  const limits = { 1: { corner: [-32768, 32767], offset: 65535 }, 2: { corner: [-128, 127], offset: 255 } };
  const largest = { images: 4, extent: 16, pixels: 256 };
  const presets = {
    "3x3 filter, padding 1: middle tap": { rank: 2, images: 2, extent: [5, 6], lower: [-1, -1], upper: [-1, -1], strides: [1, 1], offsets: [1, 1], n: 0, start: [-1, -1], pixels: 32 },
    "3x3 filter, padding 1: last tap": { rank: 2, images: 2, extent: [5, 6], lower: [-1, -1], upper: [-1, -1], strides: [1, 1], offsets: [2, 2], n: 0, start: [-1, -1], pixels: 32 },
    "the whole image, no filter": { rank: 2, images: 2, extent: [4, 6], lower: [0, 0], upper: [0, 0], strides: [1, 1], offsets: [0, 0], n: 0, start: [0, 0], pixels: 32 },
    "stride 2, tap (0, 2)": { rank: 2, images: 2, extent: [5, 6], lower: [-1, -1], upper: [-1, -1], strides: [2, 2], offsets: [0, 2], n: 0, start: [-1, -1], pixels: 16 },
    "dilation 2, tap (0, 2)": { rank: 2, images: 1, extent: [6, 7], lower: [-2, -2], upper: [-2, -2], strides: [1, 1], offsets: [0, 4], n: 0, start: [-2, -2], pixels: 32 },
    "from mid-row, over rows and images": { rank: 2, images: 2, extent: [4, 5], lower: [-1, -1], upper: [-1, -1], strides: [1, 1], offsets: [1, 1], n: 0, start: [1, 2], pixels: 32 },
    "past the last image": { rank: 2, images: 2, extent: [3, 4], lower: [0, 0], upper: [0, 0], strides: [1, 1], offsets: [0, 0], n: 1, start: [1, 0], pixels: 16 },
    "1-D: 3 taps, padding 1": { rank: 1, images: 3, extent: [9], lower: [-1], upper: [-1], strides: [1], offsets: [2], n: 0, start: [-1], pixels: 32 },
  };

  const copy = (value) => JSON.parse(JSON.stringify(value));
  const settingsOf = (s) => ({
    shape: [s.images, ...s.extent, 8], lower: s.lower, upper: s.upper, strides: s.strides, start: [s.n, ...s.start],
    offsets: s.offsets, pixels: s.pixels,
  });

  // The fields of the form: a key of the settings, a dimension or null, a label and the range.
  function fields(rank) {
    const { corner, offset } = limits[rank];
    const list = [
      ["images", null, "images", 1, largest.images],
      ...names[rank].map((name, dim) => ["extent", dim, name.toUpperCase(), 1, largest.extent]),
      ...names[rank].map((name, dim) => ["lower", dim, `lower ${name}`, ...corner]),
      ...names[rank].map((name, dim) => ["upper", dim, `upper ${name}`, ...corner]),
      ...names[rank].map((name, dim) => ["strides", dim, `stride ${name}`, 1, 8]),
      ["n", null, "start n", -1, largest.images],
      ...names[rank].map((name, dim) => ["start", dim, `start ${name}`, ...corner]),
      ...names[rank].map((name, dim) => ["offsets", dim, `offset ${name}`, 0, offset]),
      ["pixels", null, "pixels", 1, largest.pixels],
    ];
    return list.map(([key, dim, label, min, max]) => ({ key, dim, label, min, max }));
  }

  const valueOf = (s, { key, dim }) => (dim === null ? s[key] : s[key][dim]);
  function setValue(s, { key, dim }, value) {
    if (dim === null) s[key] = value;
    else s[key][dim] = value;
  }

  function toHash(s) {
    return "#im2col=" + [s.rank, ...fields(s.rank).map((field) => valueOf(s, field))].join(",");
  }

  function fromHash(hash) {
    const match = /^#im2col=(-?\d+(?:,-?\d+)*)$/.exec(hash);
    if (!match) return null;
    const [rank, ...values] = match[1].split(",").map(Number);
    const preset = Object.values(presets).find((candidate) => candidate.rank === rank);
    if (!preset || values.length !== fields(rank).length) return null;
    const s = copy(preset);
    for (const [i, field] of fields(rank).entries()) {
      if (values[i] < field.min || values[i] > field.max) return null;
      setValue(s, field, values[i]);
    }
    return s;
  }

  function element(tag, attributes = {}, ...children) {
    const svg = ["svg", "rect", "text", "g", "title"].includes(tag);
    const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  const written = (position) => `(${position.join(", ")})`;

  function drawImage(s, rows, image, current) {
    const H = s.rank === 2 ? s.extent[0] : 1;
    const W = s.extent[s.rank - 1];
    const at = (position) => (position.length === 3 ? position.slice(1) : [0, position[1]]);
    // Base positions and reads near the image are drawn; others, which corners at their limits make, are only listed.
    const near = ([h, w]) => h >= -4 && w >= -4 && h < H + 4 && w < W + 4;
    const places = rows.map(({ base }, row) => ({ row, base: at(base), read: at([base[0], ...base.slice(1).map((b, d) => b + s.offsets[d])]), n: base[0] }));
    const shown = places.filter(({ n, base, read }) => n === image && near(base) && near(read));
    const all = [[0, 0], [H - 1, W - 1], ...shown.flatMap(({ base, read }) => [base, read])];
    const [top, left] = [0, 1].map((d) => Math.min(...all.map((place) => place[d])));
    const [bottom, right] = [0, 1].map((d) => Math.max(...all.map((place) => place[d])) + 1);
    const size = 30;
    const box = [left * size - 2, top * size - 2, (right - left) * size + 4, (bottom - top) * size + 4];
    const svg = element("svg", { viewBox: box.join(" "), width: box[2], height: box[3], role: "img", "aria-label": `image ${image}` });
    const square = (h, w, kind) => element("rect", { x: w * size, y: h * size, width: size, height: size, class: kind });
    for (let h = 0; h < H; h++) for (let w = 0; w < W; w++) svg.append(square(h, w, "pixel"));
    for (const { row, read } of shown) {
      const [h, w] = read;
      const label = element("text", { x: (w + 0.5) * size, y: (h + 0.5) * size, class: "row-number" }, String(row));
      svg.append(element("g", {}, square(h, w, rows[row].read ? "read" : "filled"), label));
    }
    const marked = places[current];
    if (marked && marked.n === image && near(marked.base)) svg.append(square(...marked.base, "base"));
    if (marked && marked.n === image && near(marked.read)) svg.append(square(...marked.read, "current"));
    return element("figure", {}, svg, element("figcaption", {}, `image ${image}`));
  }

  function mount(root) {
    let settings = fromHash(location.hash) || copy(Object.values(presets)[0]);
    let current = 0;
    const select = element("select", { id: "im2col-preset" }, ...Object.keys(presets).map((name) => element("option", { value: name }, name)));
    select.prepend(element("option", { value: "" }, "own settings"));
    const form = element("div", { class: "im2col-form" });
    const images = element("div", { class: "im2col-images" });
    const slider = element("input", { type: "range", min: 0, id: "im2col-row" });
    const status = element("p", { class: "im2col-status", role: "status" });
    const body = element("tbody");
    const columns = ["row", "base", "pixel read"].map((name) => element("th", { scope: "col" }, name));
    const table = element("table", {}, element("thead", {}, element("tr", {}, ...columns)), body);
    const tableBox = element("div", { class: "im2col-rows", tabindex: 0, role: "region", "aria-label": "rows of the block" }, table);
    root.replaceChildren(
      element("p", {}, element("label", { for: "im2col-preset" }, "a load: "), select),
      form, images, element("p", { class: "im2col-slider" }, element("label", { for: "im2col-row" }, "row: "), slider), status, tableBox);

    function showRow(rows) {
      const { base, read } = rows[current];
      status.textContent = `Row ${current}: base ${written(base)}, ` + (read ? `reads pixel ${written(read)}.` : "outside the tensor: filled.");
      images.replaceChildren(...[...Array(settings.images).keys()].map((image) => drawImage(settings, rows, image, current)));
      [...body.children].forEach((line, row) => line.classList.toggle("current", row === current));
    }

    function update() {
      const rows = im2colWalk(settingsOf(settings));
      slider.max = rows.length - 1;
      current = Math.min(current, rows.length - 1);
      slider.value = current;
      const same = Object.keys(presets).find((name) => toHash(presets[name]) === toHash(settings));
      select.value = same || "";
      body.replaceChildren(...rows.map(({ base, read }, row) => {
        const cells = [row, written(base), read ? written(read) : "filled"].map((text) => element("td", {}, String(text)));
        return element("tr", read ? {} : { class: "filled" }, ...cells);
      }));
      showRow(rows);
    }

    function remember() {
      history.replaceState(null, "", toHash(settings));
    }

    function buildForm() {
      const rank = element("select", { id: "im2col-rank" }, element("option", { value: 1 }, "1-D"), element("option", { value: 2 }, "2-D"));
      rank.value = settings.rank;
      rank.addEventListener("change", () => {
        settings = copy(Object.values(presets).find((preset) => preset.rank === Number(rank.value)));
        current = 0;
        remember();
        buildForm();
        update();
        document.getElementById("im2col-rank").focus();
      });
      const inputs = fields(settings.rank).map((field) => {
        const id = `im2col-${field.key}${field.dim === null ? "" : "-" + field.dim}`;
        const input = element("input", { type: "number", id, min: field.min, max: field.max, step: 1, value: valueOf(settings, field) });
        const error = element("span", { class: "im2col-error", id: `${id}-error` });
        input.setAttribute("aria-describedby", error.id);
        input.addEventListener("input", () => {
          const value = input.valueAsNumber;
          const good = Number.isInteger(value) && value >= field.min && value <= field.max;
          error.textContent = good ? "" : `${field.min} to ${field.max}`;
          input.setAttribute("aria-invalid", String(!good));
          if (!good) return;
          setValue(settings, field, value);
          remember();
          update();
        });
        return element("div", {}, element("label", { for: id }, field.label), input, error);
      });
      form.replaceChildren(element("div", {}, element("label", { for: "im2col-rank" }, "rank"), rank), ...inputs);
    }

    select.addEventListener("change", () => {
      if (!select.value) return;
      settings = copy(presets[select.value]);
      current = 0;
      remember();
      buildForm();
      update();
    });
    slider.addEventListener("input", () => {
      current = Number(slider.value);
      showRow(im2colWalk(settingsOf(settings)));
    });
    window.addEventListener("hashchange", () => {
      settings = fromHash(location.hash) || settings;
      buildForm();
      update();
    });
    buildForm();
    update();
  }

  return { mount, toHash, fromHash, presets };
})();

document.addEventListener("DOMContentLoaded", () => {
  const root = document.getElementById("im2col-explorer");
  if (root) im2colExplorer.mount(root);
});
