/* Cases: their list, their details, their grids. Needs common.js. */
(() => {
  const STEP = 200;
  const text = (number) => data.texts[number];
  const at = (names) => Object.fromEntries(names.map((name, place) => [name, place]));
  const CASE = at(data.fields);
  const VERDICT = at(data.verdictFields);
  const cases = data.cases.map((row) => {
    const parts = [CASE.suite, CASE.subject, CASE.property, CASE.dtype].map((place) => text(row[place]));
    return {
      row,
      id: parts.filter((part) => part).join("/"),
      suite: parts[0],
      property: parts[2],
      dtype: parts[3],
      outcome: data.outcomes[row[CASE.outcome]],
      rank: row[CASE.outcome],
      finding: text(row[CASE.finding]),
      seconds: row[CASE.seconds],
      used: row[CASE.used],
      words: null,
    };
  });
  const caseById = new Map(cases.map((each) => [each.id, each]));
  const href = (id) => `#case=${encodeURIComponent(id).replaceAll("%2F", "/")}`;

  /* The list of all cases */
  const find = byId("find");
  const picks = { suite: byId("pick-suite"), property: byId("pick-property"), dtype: byId("pick-dtype") };
  const boxes = [...document.querySelectorAll("input[name=outcome]")];
  const body = byId("list").tBodies[0];
  const sorting = { by: "outcome", down: false };
  let found = cases;
  let shown = 0;

  for (const [name, select] of Object.entries(picks)) {
    select.append(make("option", { value: "", "data-say": "cases.any" }, say("cases.any")));
    const values = [...new Set(cases.map((each) => each[name]))].filter((value) => value).sort();
    for (const value of values) select.append(make("option", { value }, value));
  }

  function words(each) {
    if (each.words === null) {
      const fallbacks = each.row[CASE.fallbacks].map(text).join(" ");
      const messages = each.row[CASE.verdicts].map((verdict) => text(verdict[VERDICT.message])).join(" ");
      const rest = [text(each.row[CASE.family]), each.outcome, each.finding, fallbacks, messages, text(each.row[CASE.detail])];
      each.words = `${each.id} ${rest.join(" ")}`.toLowerCase();
    }
    return each.words;
  }

  function fits(each, needles, outcomes) {
    if (outcomes.size && !outcomes.has(each.outcome)) return false;
    for (const [name, select] of Object.entries(picks)) {
      if (select.value && each[name] !== select.value) return false;
    }
    return needles.every((needle) => words(each).includes(needle));
  }

  const keys = {
    outcome: (each) => each.rank,
    id: (each) => each.id,
    used: (each) => (typeof each.used === "number" ? each.used : each.used === null ? -1 : Infinity),
    seconds: (each) => each.seconds,
    finding: (each) => each.finding,
  };

  function sorted(list) {
    const key = keys[sorting.by];
    if (!key) return list;
    const sign = sorting.down ? -1 : 1;
    return [...list].sort((one, other) => {
      const [left, right] = [key(one), key(other)];
      return left < right ? -sign : left > right ? sign : 0;
    });
  }

  function update() {
    const needles = find.value.toLowerCase().split(/\s+/).filter((needle) => needle);
    const outcomes = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    found = sorted(cases.filter((each) => fits(each, needles, outcomes)));
    shown = 0;
    body.replaceChildren();
    further();
    count();
  }

  function count() {
    const values = { n: found.length.toLocaleString("en"), total: cases.length.toLocaleString("en") };
    byId("found").replaceChildren(said("cases.found", values));
  }

  function further() {
    const next = found.slice(shown, shown + STEP);
    body.append(...next.map(line));
    shown += next.length;
    byId("further").hidden = shown >= found.length;
  }

  function line(each) {
    return make("tr", {},
      make("td", {}, badge(each.outcome)),
      make("th", { scope: "row" }, make("a", { class: "id", href: href(each.id) }, each.id)),
      make("td", { class: "n" }, text(each.row[CASE.used_text])),
      make("td", { class: "n" }, text(each.row[CASE.time])),
      make("td", {}, each.finding));
  }

  function filters() {
    const query = new URLSearchParams();
    if (find.value) query.set("q", find.value);
    for (const [name, select] of Object.entries(picks)) if (select.value) query.set(name, select.value);
    for (const box of boxes) if (box.checked) query.append("outcome", box.value);
    return String(query);
  }

  function remember() {
    const query = filters();
    replaceHash(query ? `#cases?${query}` : "#cases");
  }

  function recall(query) {
    find.value = query.get("q") || "";
    for (const [name, select] of Object.entries(picks)) {
      const wanted = query.get(name) || "";
      select.value = [...select.options].some((option) => option.value === wanted) ? wanted : "";
    }
    const outcomes = new Set(query.getAll("outcome"));
    for (const box of boxes) box.checked = outcomes.has(box.value);
    update();
  }

  let waiting = 0;
  function soon() {
    clearTimeout(waiting);
    waiting = setTimeout(() => { update(); remember(); }, 80);
  }

  find.addEventListener("input", soon);
  for (const control of [...Object.values(picks), ...boxes]) control.addEventListener("change", soon);
  byId("reset").addEventListener("click", () => { recall(new URLSearchParams()); remember(); find.focus(); });
  byId("further").addEventListener("click", () => {
    const first = shown;
    further();
    body.rows[first]?.querySelector("a").focus();
  });
  for (const heading of document.querySelectorAll("#list th[data-sort]")) {
    heading.querySelector("button").addEventListener("click", () => {
      const by = heading.dataset.sort;
      sorting.down = sorting.by === by ? !sorting.down : by === "used" || by === "seconds";
      sorting.by = by;
      for (const other of document.querySelectorAll("#list th[data-sort]")) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", sorting.down ? "descending" : "ascending");
      update();
    });
  }

  /* One case */
  const dialog = byId("case");
  let current = null;
  let before = "";

  function table(caption, pairs) {
    if (!pairs.length) return null;
    const rows = pairs.map(([name, value]) =>
      make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, String(value))));
    return make("table", { class: "figures" }, make("caption", {}, caption), make("tbody", {}, ...rows));
  }

  const pre = (content) => (content ? make("pre", { tabindex: "0" }, content) : null);

  function inWords(message) {
    return message ? make("details", { class: "words" }, make("summary", {}, said("case.in-words")), pre(message)) : null;
  }

  const figure = (value) => (Number.isInteger(value) ? value.toLocaleString("en") : String(value));

  function metrics(verdict) {
    const values = verdict[VERDICT.values];
    return data.shapes[verdict[VERDICT.shape]].map((name, place) => [name, figure(values[place])]);
  }

  function worst(verdict) {
    return verdict[VERDICT.worst].map(([name, figure]) => [said(`worst.${text(name)}`), figure]);
  }

  function leaves(list) {
    if (!list) return null;
    const names = data.shapes[list[0][VERDICT.shape]];
    const head = [said("column.tensor"), said("column.agrees"), ...names].map((name) => make("th", { scope: "col" }, name));
    const rows = list.map((leaf) => {
      const figures = new Map(metrics(leaf));
      return make("tr", { class: leaf[VERDICT.agrees] ? "" : "odd" },
        make("th", { scope: "row" }, text(leaf[VERDICT.path])),
        make("td", {}, said(leaf[VERDICT.agrees] ? "case.yes" : "case.no")),
        ...names.map((name) => make("td", { class: "n" }, String(figures.get(name) ?? ""))));
    });
    const values = { n: String(list.length) };
    return make("div", { class: "scroll", role: "region", "aria-label": say("case.tensors", values), tabindex: "0" },
      make("table", { class: "entries" }, make("caption", {}, said("case.tensors", values)),
        make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows)));
  }

  function comparison(verdict) {
    const [pattern, waiver] = [text(verdict[VERDICT.pattern]), text(verdict[VERDICT.waiver])];
    return make("div", { class: "comparison" },
      make("p", { class: "headline" }, `${text(verdict[VERDICT.path])}: ${text(verdict[VERDICT.headline])}`),
      pattern ? make("p", { class: "pattern" }, said("case.pattern"), ` ${pattern}`) : null,
      waiver ? make("p", { class: "pattern" }, said("case.loosened"), ` ${waiver}`) : null,
      make("div", { class: "pair" },
        table(said("case.worst"), worst(verdict)),
        table(said("case.metrics", { standard: text(verdict[VERDICT.standard]) }), metrics(verdict))),
      inWords(text(verdict[VERDICT.message])),
      leaves(verdict[VERDICT.leaves]));
  }

  function again(row) {
    const node = text(row[CASE.file]) + text(row[CASE.parameters]);
    if (!node) return null;
    const command = `${data.command} '${node.replaceAll("'", "'\"'\"'")}'`;
    return make("p", { class: "again" }, said("case.again"), " ", make("code", {}, command));
  }

  function program(content) {
    if (!content) return null;
    return make("details", { class: "words program" },
      make("summary", {}, said("case.program")),
      make("button", { type: "button", class: "copy" }, said("case.copy")),
      make("pre", { tabindex: "0" }, content));
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

  function fill(each) {
    const row = each.row;
    const fallbacks = row[CASE.fallbacks].map(text).join(", ");
    const headlines = row[CASE.verdicts].map((verdict) => text(verdict[VERDICT.headline]));
    const isSaid = headlines.some((headline) => each.finding.includes(headline));
    byId("case-title").textContent = each.id;
    byId("case-body").replaceChildren(...[
      make("p", { class: "outcome" }, badge(each.outcome), " ", isSaid ? "" : each.finding),
      ...row[CASE.verdicts].map(comparison),
      fallbacks ? make("p", {}, said("case.fallbacks"), " ", make("code", {}, fallbacks)) : null,
      table(said("case.measurements"), row[CASE.measures].map((pair) => pair.map(text))),
      pre(text(row[CASE.detail])),
      again(row),
      program(text(row[CASE.snippet])),
      make("p", { class: "source" }, row[CASE.line] === null
        ? said("case.no-record") : said("case.line", { log: data.log, line: String(row[CASE.line]) })),
    ].filter((part) => part));
  }

  function open(each) {
    current = each;
    fill(each);
    const place = found.indexOf(each);
    byId("case-back").disabled = place < 1;
    byId("case-on").disabled = place < 0 || place + 1 >= found.length;
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
  }

  function step(by) {
    const next = found[found.indexOf(current) + by];
    if (next) {
      replaceHash(href(next.id));
      open(next);
    }
  }

  function replaceHash(hash) {
    history.replaceState(null, "", `${location.href.split("#")[0]}${hash}`);
  }

  byId("case-back").addEventListener("click", () => step(-1));
  byId("case-on").addEventListener("click", () => step(1));
  byId("case-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("close", () => {
    if (location.hash.startsWith("#case=")) replaceHash(before);
  });

  /* Links */
  function decoded(part) {
    try { return decodeURIComponent(part); } catch { return part; }
  }

  function route() {
    const hash = location.hash;
    if (hash.startsWith("#case=")) {
      const each = caseById.get(decoded(hash.slice("#case=".length)));
      if (each) open(each);
      return;
    }
    before = hash;
    if (dialog.open) dialog.close();
    if (hash.startsWith("#cases?")) {
      recall(new URLSearchParams(hash.slice("#cases?".length)));
      byId("cases").scrollIntoView();
    }
  }

  /* Grids */
  function sieve(id) {
    const needle = document.querySelector(`.grid-find[data-grid="${id}"]`).value.trim().toLowerCase();
    const odd = document.querySelector(`.grid-odd[data-grid="${id}"]`).checked;
    let rows = 0;
    for (const part of byId(`grid-${id}`).tBodies) {
      const [family, ...subjects] = part.rows;
      const name = family.textContent.toLowerCase();
      let left = 0;
      for (const subject of subjects) {
        const named = !needle || name.includes(needle) || subject.cells[0].textContent.toLowerCase().includes(needle);
        const wanted = !odd || subject.querySelector(".mark:not(.o-passed)") !== null;
        subject.hidden = !(named && wanted);
        left += subject.hidden ? 0 : 1;
      }
      part.hidden = !left;
      part.classList.toggle("sifted", Boolean(needle || odd));
      rows += left;
    }
    byId(`grid-${id}-none`).hidden = rows > 0;
  }

  for (const control of document.querySelectorAll(".grid-find, .grid-odd")) {
    control.addEventListener("input", () => sieve(control.dataset.grid));
  }

  function walk(event) {
    const ways = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
    const mark = event.target.closest("a.mark");
    if (!mark || !ways[event.key]) return;
    const [across, down] = ways[event.key];
    const rows = [...mark.closest("table").querySelectorAll("tbody tr:not(.family)")].filter((row) => row.offsetParent);
    const marks = (row) => [...row.querySelectorAll("a.mark")];
    const row = mark.closest("tr");
    const column = marks(row).indexOf(mark);
    const target = down ? rows[rows.indexOf(row) + down] : row;
    const next = target && marks(target)[Math.min(column + across, marks(target).length - 1)];
    if (next) { event.preventDefault(); next.focus(); }
  }

  for (const grid of document.querySelectorAll("table.grid")) {
    grid.addEventListener("keydown", walk);
    grid.addEventListener("click", (event) => {
      const button = event.target.closest(".family button");
      if (!button) return;
      const closed = button.closest("tbody").classList.toggle("closed");
      button.setAttribute("aria-expanded", String(!closed));
    });
    grid.addEventListener("mouseover", (event) => {
      const mark = event.target.closest("a.mark");
      if (mark && !mark.title) mark.title = mark.getAttribute("aria-label");
    });
  }

  addEventListener("hashchange", route);
  update();
  route();
})();
