/* One case in full: what decided, where errors lie, how to see it again. Its details are unpacked when first wanted. */
const CaseView = (() => {
  const at = (names) => Object.fromEntries(names.map((name, place) => [name, place]));
  let unpacked = null;

  /* Details travel as JSON, compressed by zlib, in base64. */
  function details() {
    unpacked ??= (async () => {
      const letters = atob(byId("details").textContent);
      const packed = new Uint8Array(letters.length);
      for (let place = 0; place < letters.length; place += 1) packed[place] = letters.charCodeAt(place);
      const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
      const found = JSON.parse(await new Response(stream).text());
      return { ...found, DETAIL: at(found.fields), VERDICT: at(found.verdictFields) };
    })();
    return unpacked;
  }

  function table(caption, pairs) {
    if (!pairs.length) return null;
    const rows = pairs.map(([name, value]) =>
      make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, String(value))));
    return make("table", { class: "figures" }, make("caption", {}, caption), make("tbody", {}, ...rows));
  }

  const pre = (content) => (content ? make("pre", { tabindex: "0" }, content) : null);
  const folded = (title, ...content) => {
    const parts = content.filter((each) => each && (each.childNodes.length || each.textContent));
    return parts.length ? make("details", { class: "words" }, make("summary", {}, title), ...parts) : null;
  };
  const figure = (value) => (Number.isInteger(value) ? value.toLocaleString("en") : String(value));

  function elements(rows) {
    if (!rows.length) return null;
    const head = ["worst.element", "worst.actual", "worst.expected"].map((key) => make("th", { scope: "col" }, said(key)));
    return make("table", { class: "figures worst" }, make("caption", {}, said("case.elements")),
      make("thead", {}, make("tr", {}, ...head)),
      make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((each) => make("td", {}, each))))));
  }

  /* Where errors lie: the tensor as a rectangle, its last dimension across and all others down. */
  function picture(rows) {
    if (!rows.length) return null;
    const [high, wide] = [rows.length, Math.max(...rows.map((row) => row.length))];
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const [width, height] = [Math.max(wide * 10, 120), Math.max(high * 10, 20)];
    for (const [name, value] of Object.entries({ viewBox: `0 0 ${width} ${height}`, class: "map", role: "img", "aria-label": say("case.where") })) {
      svg.setAttribute(name, value);
    }
    rows.forEach((row, down) => [...row].forEach((level, across) => {
      const cell = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      const place = { x: across * width / wide, y: down * height / high, width: width / wide, height: height / high, class: `m${level}` };
      for (const [name, value] of Object.entries(place)) cell.setAttribute(name, value);
      svg.append(cell);
    }));
    return make("figure", { class: "where" }, make("figcaption", {}, said("case.where")), svg);
  }

  function view(rest, each) {
    const { DETAIL, VERDICT } = rest;
    const text = (number) => rest.texts[number];
    const both = (number) => said("foreign.text", { en: text(number), zh: rest.chinese[number] ?? text(number) });
    const row = rest.cases[each.place];

    function metrics(verdict) {
      const values = verdict[VERDICT.values];
      return rest.shapes[verdict[VERDICT.shape]].map((name, place) => [name, figure(values[place])]);
    }

    function leaves(list) {
      if (!list) return null;
      const names = rest.shapes[list[0][VERDICT.shape]];
      const head = [said("column.tensor"), said("column.agrees"), ...names].map((name) => make("th", { scope: "col" }, name));
      const rows = list.map((leaf) => {
        const figures = new Map(metrics(leaf));
        return make("tr", { class: leaf[VERDICT.agrees] ? "" : "odd" },
          make("th", { scope: "row" }, text(leaf[VERDICT.path])),
          make("td", {}, said(leaf[VERDICT.agrees] ? "case.yes" : "case.no")),
          ...names.map((name) => make("td", { class: "n" }, String(figures.get(name) ?? ""))));
      });
      const values = { n: String(list.length) };
      return folded(said("case.tensors", values), scrolled(make("table", { class: "entries" },
        make("caption", { class: "sr" }, said("case.tensors", values)),
        make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows)), say("case.tensors", values)));
    }

    function comparison(verdict) {
      const [pattern, waiver] = [text(verdict[VERDICT.pattern]), text(verdict[VERDICT.waiver])];
      const decided = verdict[VERDICT.worst].map(([name, found]) => [said(`worst.${text(name)}`), found]);
      const bad = !verdict[VERDICT.agrees];
      const allMetrics = table(said("case.metrics", { standard: text(verdict[VERDICT.standard]) }), metrics(verdict));
      const message = text(verdict[VERDICT.message]);
      return make("div", { class: "comparison" },
        make("p", { class: "headline" }, `${text(verdict[VERDICT.path])}: `, both(verdict[VERDICT.headline])),
        pattern ? make("p", { class: "pattern" }, said("case.pattern"), " ", both(verdict[VERDICT.pattern])) : null,
        waiver ? make("p", { class: "pattern" }, said("case.loosened"), ` ${waiver}`) : null,
        make("div", { class: "pair" }, table(said("case.decided"), decided), elements(verdict[VERDICT.elements])),
        bad ? picture(verdict[VERDICT.where]) : null,
        folded(said("case.figures"), allMetrics),
        message && !text(row[DETAIL.detail]).includes(message) ? folded(said("case.in-words"), pre(message)) : null,
        leaves(verdict[VERDICT.leaves]));
    }

    function again() {
      const node = text(row[DETAIL.file]) + text(row[DETAIL.parameters]);
      if (!node) return null;
      const command = `${data.arguments} '${node.replaceAll("'", "'\"'\"'")}'`;
      return make("p", { class: "again" }, said("case.again"), " ", make("code", {}, command));
    }

    function program(content) {
      if (!content) return null;
      return make("details", { class: "words program" },
        make("summary", {}, said("case.program")),
        make("button", { type: "button", class: "copy" }, said("case.copy")),
        make("pre", { tabindex: "0" }, content));
    }

    const verdicts = row[DETAIL.verdicts];
    const detail = () => pre(text(row[DETAIL.detail]) ? both(row[DETAIL.detail]) : "");
    const [bad, good] = [verdicts.filter((one) => !one[VERDICT.agrees]), verdicts.filter((one) => one[VERDICT.agrees])];
    const fallbacks = row[DETAIL.fallbacks].map(text).join(", ");
    const measures = row[DETAIL.measures].map((pair) => pair.map(text));
    return {
      headlines: bad.map((verdict) => text(verdict[VERDICT.headline])),
      words: [fallbacks, ...verdicts.map((verdict) => text(verdict[VERDICT.message])), text(row[DETAIL.detail])].join(" "),
      evidence: () => [
        ...bad.map(comparison),
        fallbacks ? make("p", {}, said("case.fallbacks"), " ", make("code", {}, fallbacks)) : null,
        bad.length ? folded(said("case.in-words"), detail()) : detail(),
        program(text(row[DETAIL.snippet])),
      ].filter((part) => part),
      rest: () => [
        again(),
        ...(bad.length ? [folded(said("case.agreeing", { n: String(good.length) }), ...good.map(comparison))] : good.map(comparison)),
        table(said("case.measurements"), measures),
        make("p", { class: "source" }, row[DETAIL.line] === null
          ? said("case.no-record") : said("case.line", { log: data.log, line: String(row[DETAIL.line]) })),
      ].filter((part) => part),
    };
  }

  /* Where the browser keeps its clipboard shut (a page opened as a file, say), what is to be copied is selected. */
  async function copy(button) {
    const held = button.parentElement.querySelector("pre");
    try {
      await navigator.clipboard.writeText(held.textContent);
      button.replaceChildren(said("case.copied"));
    } catch {
      getSelection().selectAllChildren(held);
      button.replaceChildren(said(document.execCommand("copy") ? "case.copied" : "case.selected"));
    }
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button.copy");
    if (button) copy(button);
  });

  return { details, view };
})();
