/* Cases: their list, their grids, their causes. Needs common.js and case.js. */
(() => {
  const at = (names) => Object.fromEntries(names.map((name, place) => [name, place]));
  const text = (number) => data.texts[number];
  const FIELD = at(data.fields);
  const columns = [];
  let width = data.fields.length;
  for (const { name, number } of data.columns) {
    columns.push({ name, number, place: width });
    width += number ? 2 : 1;
  }
  const names = ["suite", "subject", "property", "dtype"];
  const cases = data.cases.map((row, place) => {
    const [suite, subject, property, dtype] = names.map((name) => text(row[FIELD[name]]));
    return { row, place, suite, subject, property, dtype, rank: row[FIELD.outcome],
      id: [suite, subject, property, dtype].filter((part) => part).join("/"), outcome: data.outcomes[row[FIELD.outcome]] };
  });
  let rest = null;  // the details of all cases, when they are unpacked
  const cell = (each, column) => text(each.row[column.place]);
  const finding = (each) => cell(each, columns.find((column) => column.name === "reason"));
  const caseById = new Map(cases.map((each) => [each.id, each]));
  const href = (id) => `#case=${encodeURIComponent(id).replaceAll("%2F", "/")}`;

  /* The list of all cases */
  const find = byId("find");
  const picks = { suite: byId("pick-suite"), property: byId("pick-property"), dtype: byId("pick-dtype"), cause: byId("pick-cause") };
  const boxes = [...document.querySelectorAll("input[name=outcome]")];
  const body = byId("list").tBodies[0];
  const sorting = { by: "outcome", down: false };
  let found = cases;
  let listed = null;
  const causeOf = (each) => data.causes[each.row[FIELD.cause]]?.[0] ?? "";

  for (const [name, select] of Object.entries(picks)) {
    select.append(make("option", { value: "", "data-say": "cases.any" }, say("cases.any")));
    const values = name === "cause" ? data.causes
      : [...new Set(cases.map((each) => each[name]))].filter((value) => value).sort().map((value) => [value, value]);
    for (const [value, title] of values.slice(0, 500)) select.append(make("option", { value }, title.slice(0, 80)));
  }

  function words(each) {
    if (!each.words || (rest && !each.hasDetails)) {
      const own = [each.id, text(each.row[FIELD.family]), each.outcome, ...columns.map((column) => cell(each, column))];
      each.words = [...own, rest ? CaseView.view(rest, each).words : ""].join(" ").toLowerCase();
      each.hasDetails = Boolean(rest);
    }
    return each.words;
  }

  function fits(each, needles, outcomes, wanted) {
    if (outcomes.size && !outcomes.has(each.outcome)) return false;
    if (wanted.cause && causeOf(each) !== wanted.cause) return false;
    if (["suite", "property", "dtype"].some((name) => wanted[name] && each[name] !== wanted[name])) return false;
    return needles.every((needle) => words(each).includes(needle));
  }

  function keyOf(by) {
    if (by === "outcome") return (each) => each.rank;
    if (by === "case") return (each) => each.id;
    const column = columns.find((each) => each.name === by);
    if (!column.number) return (each) => cell(each, column);
    return (each) => {
      const value = each.row[column.place + 1];
      return typeof value === "number" ? value : value === "" ? -1 : Infinity;
    };
  }

  function sorted(list) {
    const key = keyOf(sorting.by);
    const sign = sorting.down ? -1 : 1;
    return list.map((each) => [key(each), each]).sort(([left], [right]) => (left < right ? -sign : left > right ? sign : 0))
      .map(([, each]) => each);
  }

  function update() {
    const needles = find.value.toLowerCase().split(/\s+/).filter((needle) => needle);
    if (needles.length && !rest) CaseView.details().then((unpacked) => { rest = unpacked; update(); });
    const outcomes = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    const wanted = Object.fromEntries(Object.entries(picks).map(([name, select]) => [name, select.value]));
    found = sorted(cases.filter((each) => fits(each, needles, outcomes, wanted)));
    listed?.stop();
    listed = inSteps(body, found, line);
    byId("further").hidden = listed.isDone();
    count();
  }

  function count() {
    const values = { n: found.length.toLocaleString("en"), total: cases.length.toLocaleString("en") };
    byId("found").replaceChildren(said("cases.found", values));
  }

  function line(each) {
    return make("tr", {},
      make("td", {}, badge(each.outcome)),
      make("th", { scope: "row" }, make("a", { class: "id", href: href(each.id) }, each.id)),
      ...columns.map((column) => make("td", { class: column.number ? "n" : "" }, cell(each, column))));
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
    const first = body.rows.length - 1;
    listed.more();
    byId("further").hidden = listed.isDone();
    body.rows[first]?.querySelector("a").focus();
  });
  for (const heading of document.querySelectorAll("#list th[data-sort]")) {
    heading.querySelector("button").addEventListener("click", () => {
      const by = heading.dataset.sort;
      sorting.down = sorting.by === by ? !sorting.down : heading.classList.contains("n");
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

  async function fill(each) {
    byId("case-title").textContent = each.id;
    byId("case-body").replaceChildren(make("p", { class: "outcome" }, badge(each.outcome), " ", finding(each)));
    rest = await CaseView.details();
    if (current !== each) return;
    const view = CaseView.view(rest, each);
    const said = view.headlines.some((headline) => finding(each).includes(headline)) ? "" : finding(each);
    byId("case-body").replaceChildren(make("p", { class: "outcome" }, badge(each.outcome), " ", said), ...view.evidence(), ...view.rest());
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
    } else if (hash.startsWith("#cause=")) {
      for (const section of document.querySelectorAll("#smaller, #absent")) if (!document.getElementById(hash.slice(1))) unfold(section);
      const cause = byId(hash.slice(1)) ?? byId(decoded(hash.slice(1)));
      if (cause) { cause.open = true; cause.scrollIntoView(); }
    } else {
      const section = hash.length > 1 ? byId(decoded(hash.slice(1))) : null;
      unfold(section);
      section?.scrollIntoView();
    }
  }

  /* Causes: the evidence of the simplest case is filled in when a cause is opened. */
  async function showCause(cause) {
    const place = cause.querySelector(".evidence");
    const each = caseById.get(cause.dataset.example);
    if (!each || place.childElementCount) return;
    rest = await CaseView.details();
    if (!place.childElementCount) place.append(...CaseView.view(rest, each).evidence());
  }

  function watchCauses(root) {
    for (const cause of root.querySelectorAll("details.cause")) {
      cause.addEventListener("toggle", () => { if (cause.open) showCause(cause); });
    }
  }

  /* Suites: subjects by dtype, a mark for each property; rows of a family are made when it is opened. */
  const OPEN_ROWS = 40;
  const isWell = (each) => ["passed", "waived", "disputed"].includes(each.outcome);
  const byName = (one, other) => one.localeCompare(other, "en");

  function grouped(list, key) {
    const groups = new Map();
    for (const each of list) {
      const name = key(each);
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(each);
    }
    return [...groups].sort(([one], [other]) => byName(one, other));
  }

  function tally(list) {
    const counts = new Map();
    for (const each of list) counts.set(each.rank, (counts.get(each.rank) ?? 0) + 1);
    return [...counts].sort(([one], [other]) => one - other)
      .map(([rank, n]) => say("count-of-outcome", { n: n.toLocaleString("en"), outcome: { say: `outcome.${data.outcomes[rank]}` } }))
      .join(say("list.comma"));
  }

  function mark(each, letters) {
    const label = `${[each.subject, each.property, each.dtype].filter((part) => part).join(" ")}: ${say(`outcome.${each.outcome}`)}`;
    return make("a", { class: `mark o-${each.outcome}`, href: href(each.id), "aria-label": label, title: label }, letters[each.property]);
  }

  function subjectRow([subject, members], { dtypes, letters }) {
    const order = Object.keys(letters);
    members.sort((one, other) => order.indexOf(one.property) - order.indexOf(other.property));
    return make("tr", {}, make("th", { scope: "row" }, subject), ...dtypes.map((dtype) =>
      make("td", {}, ...members.filter((each) => each.dtype === dtype).map((each) => mark(each, letters)))));
  }

  function layOut(grid) {
    const section = grid.closest(".folded");
    const suite = data.suites[grid.dataset.suite];
    const members = cases.filter((each) => each.suite === grid.dataset.suite);
    const families = grouped(members, (each) => text(each.row[FIELD.family]));
    const [needle, odd] = [section.querySelector(".grid-find"), section.querySelector(".grid-odd")];
    grid.append(make("thead", {}, make("tr", {}, make("th", { scope: "col" }, said("matrix.subject")),
      ...suite.dtypes.map((dtype) => make("th", { scope: "col" }, dtype || said("grid.no-dtype"))))));
    section.querySelector(".key").replaceChildren(...Object.entries(suite.letters)
      .map(([name, short]) => make("span", {}, make("b", { class: "mark plain" }, short), ` ${name} `)));
    const parts = families.map(([name, list]) => {
      const part = make("tbody");
      const button = make("button", { type: "button", "aria-expanded": "false" },
        make("span", { class: "arrow", "aria-hidden": "true" }), name || said("grid.other"));
      const head = make("tr", { class: "family" }, make("th", { scope: "rowgroup", colspan: String(suite.dtypes.length + 1) },
        button, " ", make("span", { class: "tally" }, tally(list))));
      part.append(head);
      grid.append(part);
      const subjects = grouped(list, (each) => each.subject);
      function show(wanted) {
        part.replaceChildren(head, ...wanted.map((subject) => subjectRow(subject, suite)));
        button.setAttribute("aria-expanded", String(wanted.length > 0));
        part.classList.toggle("closed", !wanted.length);
      }
      button.addEventListener("click", () => show(part.rows.length > 1 ? [] : subjects));
      part.classList.add("closed");
      return { part, name, subjects, show, isOdd: !list.every(isWell) };
    });
    let left = OPEN_ROWS;
    const all = parts.reduce((sum, each) => sum + each.subjects.length, 0) <= OPEN_ROWS;
    for (const each of parts) {
      if ((all || each.isOdd) && each.subjects.length <= left) {
        left -= each.subjects.length;
        each.show(each.subjects);
      }
    }
    function sieve() {
      const wanted = needle.value.trim().toLowerCase();
      let rows = 0;
      for (const each of parts) {
        const fitting = each.subjects.filter(([subject, list]) =>
          (!wanted || `${subject} ${each.name}`.toLowerCase().includes(wanted)) && (!odd.checked || list.some((one) => one.outcome !== "passed")));
        const isSieved = Boolean(wanted || odd.checked);
        each.show(isSieved ? fitting.slice(0, Math.max(0, 200 - rows)) : []);
        each.part.hidden = isSieved && !fitting.length;
        rows += fitting.length;
      }
      section.querySelector(".none").hidden = rows > 0;
    }
    for (const control of [needle, odd]) control.addEventListener("input", sieve);
    grid.addEventListener("keydown", walk);
  }

  function listSuite(holder) {
    const heading = byId("list").tHead.querySelectorAll("th");
    const body = make("tbody");
    const heads = [...heading].map((each) => make("th", { scope: "col", class: each.className }, said(`column.${each.dataset.sort}`)));
    holder.append(scrolled(make("table", { class: "entries" }, make("caption", { class: "sr" }, said("nav.cases")),
      make("thead", {}, make("tr", {}, ...heads)), body), say("nav.cases")));
    inSteps(body, sorted(cases.filter((each) => each.suite === holder.dataset.suite)), line);
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

  onMade.push((root) => {
    watchCauses(root);
    root.querySelectorAll("table.grid").forEach(layOut);
    root.querySelectorAll(".listed").forEach(listSuite);
  });
  onLanguage.push(count);
  watchCauses(document);
  addEventListener("hashchange", route);
  update();
  route();
  /* The largest cause is what a reader of a failing run came for: it is open when the page is at rest. */
  const largest = location.hash.length > 1 ? null : document.querySelector("#deviations details.cause");
  if (largest) setTimeout(() => { largest.open = true; });
})();
