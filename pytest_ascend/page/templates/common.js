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
const tables = JSON.parse(byId("words").textContent).words;
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

function speak() {
  document.documentElement.lang = language === "zh" ? "zh-CN" : language;
  for (const each of document.querySelectorAll("[data-say]")) each.textContent = phrase(parsed(each.dataset.say));
  for (const name of ["aria-label", "placeholder"]) {
    for (const each of document.querySelectorAll(`[data-say-${name}]`)) {
      each.setAttribute(name, phrase(parsed(each.getAttribute(`data-say-${name}`))));
    }
  }
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

const symbols = {};
for (const each of document.querySelectorAll(".badge[class*='o-']")) {
  const name = [...each.classList].find((one) => one.startsWith("o-")).slice(2);
  symbols[name] = each.firstElementChild.textContent;
}

function badge(outcome) {
  return make("span", { class: `badge o-${outcome}` },
    make("span", { "aria-hidden": "true" }, symbols[outcome]), " ", said(`outcome.${outcome}`));
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
      make("thead", {}, make("tr", {}, ...cells(numbers.columns, "th", { scope: "col" }))),
      make("tbody", {}, ...numbers.rows.map((row) => make("tr", {}, ...cells(row, "td", { class: "n" })))))));
}
for (const details of document.querySelectorAll("details.numbers")) {
  details.addEventListener("toggle", () => { if (details.open && !details.querySelector("table")) tabulate(details); });
}

addEventListener("beforeprint", () => {
  for (const each of document.querySelectorAll("details:not([open]):not(.numbers)")) {
    each.open = true;
    each.dataset.shut = "";
  }
});
addEventListener("afterprint", () => {
  for (const each of document.querySelectorAll("details[data-shut]")) {
    each.open = false;
    delete each.dataset.shut;
  }
});
