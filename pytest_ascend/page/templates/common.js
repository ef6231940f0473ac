"use strict";
/* Everything foreign enters a page as text (textContent, value), never as markup. */
const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

/* What the reader chose is kept where the browser allows it, and is forgotten where not. */
const kept = {
  get(name) { try { return localStorage.getItem(`pytest-ascend-${name}`); } catch { return null; } },
  set(name, value) { try { localStorage.setItem(`pytest-ascend-${name}`, value); } catch { /* not kept */ } },
};

/* Languages: a phrase is a key, or a key with values; a value is text, a phrase, or a list to be joined. */
const { words: tables, symbols } = JSON.parse(byId("words").textContent);
const chosen = kept.get("language") || navigator.language.slice(0, 2);
let language = tables[chosen] ? chosen : "en";
const onLanguage = [];

function say(key, values) {
  const form = tables[language][key] ?? key;
  return values ? form.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? value(values[name]) : whole)) : form;
}

function value(part) {
  if (typeof part === "string") return part;
  if (part.say) return phrase(part.say);
  const parts = part.list.map(value);
  const last = parts.pop();
  return parts.length ? parts.join(say("list.comma")) + say("list.last") + last : last;
}

const phrase = (written) => (typeof written === "string" ? say(written) : say(...written));
const parsed = (written) => (written.startsWith("[") ? JSON.parse(written) : written);
const said = (key, values) => make("span", { "data-say": values ? JSON.stringify([key, values]) : key }, say(key, values));

function speakIn(root) {
  for (const each of root.querySelectorAll("[data-say]")) each.textContent = phrase(parsed(each.dataset.say));
  for (const name of ["aria-label", "placeholder"]) {
    for (const each of root.querySelectorAll(`[data-say-${name}]`)) {
      each.setAttribute(name, phrase(parsed(each.getAttribute(`data-say-${name}`))));
    }
  }
}

function speak() {
  document.documentElement.lang = language === "zh" ? "zh-CN" : language;
  speakIn(document);
  for (const listener of onLanguage) listener();
}

function choose(id, now, act) {
  byId(id).value = now;
  byId(id).addEventListener("change", (event) => {
    kept.set(id, event.target.value);
    act(event.target.value);
  });
}

function theme(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
}

const themed = ["light", "dark"].includes(kept.get("theme")) ? kept.get("theme") : "system";
document.documentElement.classList.add("js");
theme(themed);
choose("theme", themed, theme);
choose("language", language, (code) => { language = code; speak(); });
if (language !== "en") addEventListener("DOMContentLoaded", speak);

function badge(outcome) {
  return make("span", { class: `badge o-${outcome}` },
    make("span", { "aria-hidden": "true" }, symbols[outcome] ?? ""), " ", said(`outcome.${outcome}`));
}

/* The numbers behind a picture become a table when somebody asks for them. */
function tabulate(details) {
  const numbers = JSON.parse(details.dataset.numbers);
  const cells = (names, tag, attributes) => names.map((each) => make(tag, attributes, String(each)));
  const name = details.closest("figure").querySelector(".id").textContent.replace(/[^\w.-]+/g, "_");
  const save = make("a", { download: `${name}.json`,
    href: `data:application/json,${encodeURIComponent(details.dataset.numbers)}` }, said("chart.json"));
  details.append(save, make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": say("chart.numbers") },
    make("table", { class: "entries" },
      make("thead", {}, make("tr", {}, ...cells(language === "zh" ? numbers.chinese : numbers.columns, "th", { scope: "col" }))),
      make("tbody", {}, ...numbers.rows.map((row) => make("tr", {}, ...cells(row, "td", { class: "n" })))))));
}

/* Sections are made when they are opened; who makes what is in them registers here. */
const onMade = [(root) => {
  for (const details of root.querySelectorAll("details.numbers")) {
    details.addEventListener("toggle", () => { if (details.open && !details.querySelector("table")) tabulate(details); });
  }
}];

function makeSection(fold) {
  const template = fold.querySelector(":scope > template");
  if (!template) return;
  const body = make("div", { class: "folded" });
  body.append(template.content);
  template.replaceWith(body);
  speakIn(body);
  for (const listener of onMade) listener(body);
}
for (const fold of document.querySelectorAll("details.fold")) {
  fold.addEventListener("toggle", () => { if (fold.open) makeSection(fold); });
}
function unfold(section) {
  const fold = section?.querySelector(":scope > details.fold");
  if (!fold) return;
  makeSection(fold);
  fold.open = true;
}

/* Rows of a long list are made as they are looked at: a screen of them at first, more when one scrolls to the end. */
function inSteps(holder, items, makeRow, step = 50) {
  let shown = 0;
  const end = holder.tagName === "TBODY" ? make("tr", { class: "end", "aria-hidden": "true" }, make("td")) : make("div", { class: "end" });
  const watcher = new IntersectionObserver((entries) => { if (entries.some((each) => each.isIntersecting)) more(); },
    { root: holder.closest(".scroll"), rootMargin: "400px" });
  function more() {
    const next = items.slice(shown, shown + step);
    end.before(...next.map(makeRow));
    shown += next.length;
    if (shown >= items.length) { watcher.disconnect(); end.remove(); }
  }
  holder.replaceChildren(end);
  more();
  if (shown < items.length) watcher.observe(end);
  return { more, isDone: () => shown >= items.length, stop: () => watcher.disconnect() };
}

function scrolled(table, label) {
  return make("div", { class: "scroll tall", role: "region", "aria-label": label, tabindex: "0" }, table);
}

/* What changed: groups of rows, and a search over all of them. */
const changeGroups = [...document.querySelectorAll("details.changes")];
const changeFind = byId("find-change");

function changeRow([id, href, was, now, before, after, finding]) {
  return make("tr", {},
    make("th", { scope: "row" }, href ? make("a", { class: "id", href }, id) : make("span", { class: "id" }, id)),
    make("td", {}, was ? badge(was) : before), make("td", {}, now ? badge(now) : after), make("td", {}, finding));
}

function listChanges(group) {
  const needles = changeFind.value.toLowerCase().split(/\s+/).filter((needle) => needle);
  const rows = data.changes[group.dataset.kind] ?? [];
  const found = rows.filter((row) => needles.every((needle) => row.join(" ").toLowerCase().includes(needle)));
  const name = `diff.${group.dataset.kind}`;
  const body = make("tbody");
  const heads = ["column.case", "column.before", "column.after", "column.reason"];
  group.querySelector(".rows").replaceChildren(scrolled(make("table", { class: "entries" },
    make("caption", { class: "sr" }, said(name)),
    make("thead", {}, make("tr", {}, ...heads.map((each) => make("th", { scope: "col" }, said(each))))), body), say(name)));
  inSteps(body, found, changeRow);
  group.querySelector("summary .tally").textContent =
    needles.length ? `${found.length.toLocaleString("en")} / ${rows.length.toLocaleString("en")}` : rows.length.toLocaleString("en");
  return found.length;
}
for (const group of changeGroups) {
  group.addEventListener("toggle", () => { if (group.open) listChanges(group); });
  if (group.open) listChanges(group);
}
if (changeFind) {
  let waiting = 0;
  changeFind.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      for (const group of changeGroups) group.open = listChanges(group) > 0 && (group.open || changeFind.value !== "");
    }, 80);
  });
}
