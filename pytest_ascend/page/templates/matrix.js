/* The matrix: rows of subjects, columns of runs, filtered by chip. Needs common.js. */
(() => {
  const STEP = 60;
  const [find, odd, chip] = [byId("find"), byId("odd"), byId("chip")];
  const table = byId("table");
  const isOdd = (number) => number >= 0 && data.tallies[number].some(([outcome]) => !["passed", "waived", "disputed"].includes(outcome));
  const lines = data.lines.map(([suite, family, subject, cells]) =>
    ({ suite, family, subject, cells, words: `${suite} ${family} ${subject}`.toLowerCase() }));
  let columns = [];
  let found = [];
  let shown = 0;

  chip.append(make("option", { value: "", "data-say": "cases.any" }, say("cases.any")));
  for (const name of new Set(data.runs.map((run) => run.chip))) chip.append(make("option", { value: name }, name));

  function head() {
    const cells = columns.map((column) => {
      const run = data.runs[column];
      const label = run.label ? `${run.name} (${run.label})` : run.name;
      return make("th", { scope: "col", class: run.label ? "foreign" : "" },
        make("a", { href: `#run-${column + 1}`, title: label, "aria-label": `${column + 1}: ${label}` }, String(column + 1)));
    });
    table.tHead.replaceChildren(make("tr", {}, make("th", { scope: "col" }, said("matrix.subject")), ...cells));
  }

  function cell(number) {
    if (number < 0) return make("td", { class: "absent" }, "·");
    const tally = data.tallies[number];
    const [worst, count] = tally[0];
    const words = tally.map(([outcome, many]) => `${many.toLocaleString("en")} ${say(`outcome.${outcome}`)}`).join(say("list.comma"));
    const mark = make("span", { class: `mark o-${worst}`, title: words, role: "img", "aria-label": words },
      `${symbols[worst]}${worst === "passed" ? "" : count.toLocaleString("en")}`);
    return make("td", {}, mark);
  }

  function line(each) {
    return make("tr", {},
      make("th", { scope: "row" }, each.subject, " ", make("span", { class: "tally" }, each.family || each.suite)),
      ...columns.map((column) => cell(each.cells[column])));
  }

  function further() {
    const next = found.slice(shown, shown + STEP);
    table.tBodies[0].append(...next.map(line));
    shown += next.length;
    byId("further").hidden = shown >= found.length;
  }

  function update() {
    columns = data.runs.map((run, place) => place).filter((place) => !chip.value || data.runs[place].chip === chip.value);
    const needles = find.value.toLowerCase().split(/\s+/).filter((needle) => needle);
    found = lines.filter((each) => needles.every((needle) => each.words.includes(needle))
      && columns.some((column) => each.cells[column] >= 0)
      && (!odd.checked || columns.some((column) => isOdd(each.cells[column]))));
    shown = 0;
    table.tBodies[0].replaceChildren();
    head();
    further();
    for (const [place, row] of [...byId("runs").tBodies[0].rows].entries()) row.hidden = !columns.includes(place);
    const values = { n: found.length.toLocaleString("en"), total: lines.length.toLocaleString("en") };
    byId("found").replaceChildren(said("matrix.rows", values));
  }

  function remember() {
    const query = new URLSearchParams();
    if (find.value) query.set("q", find.value);
    if (chip.value) query.set("chip", chip.value);
    if (odd.checked) query.set("odd", "1");
    history.replaceState(null, "", `${location.href.split("#")[0]}#${String(query) ? `matrix?${query}` : "matrix"}`);
  }

  function recall() {
    if (!location.hash.startsWith("#matrix?")) return;
    const query = new URLSearchParams(location.hash.slice("#matrix?".length));
    find.value = query.get("q") || "";
    odd.checked = query.get("odd") === "1";
    const wanted = query.get("chip") || "";
    chip.value = [...chip.options].some((option) => option.value === wanted) ? wanted : "";
  }

  let waiting = 0;
  for (const control of [find, odd, chip]) {
    control.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => { update(); remember(); }, 80);
    });
  }
  byId("further").addEventListener("click", further);
  addEventListener("hashchange", () => { recall(); update(); });
  onLanguage.push(update);
  recall();
  update();
})();
