"use strict";
const find = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const query = new URLSearchParams(location.search);
const go = (changes, page = "problem") => {
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) query.delete(name); else query.set(name, value);
  }
  location.assign(`${page}?${query}`);
};
const keys = {};

const table = find("#problems");
if (table) showTable(table);
const sections = all("section");
if (sections.length) showProblem(sections);
keys["?"] = () => find("#keys").showModal();
keys["/"] = () => find("input[type=search]")?.focus();
keys.t = () => find("#table")?.click();
keys.n = () => find("#next")?.click();
keys.p = () => find("#previous")?.click();
document.addEventListener("keydown", (event) => {
  // A dialog that has just closed keeps the focus until the next frame, so the target doesn't tell.
  const typing = event.target.closest("input:not([type=range]), select, textarea");
  if (typing || find("dialog[open]") || event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(keys, event.key)) return;
  event.preventDefault();
  keys[event.key]();
});

function showTable(table) {
  const rows = [...table.tBodies[0].rows];
  // A link that was sent names a problem behind "#": the page that has it is opened.
  const followSent = () => {
    const sent = new URLSearchParams(location.hash.slice(1));
    const row = sent.get("problem") && rows.find((row) => row.dataset.problem === sent.get("problem"));
    if (!row) return;
    const target = new URL(find("a", row).href);
    if (target.search && sent.get("sample")) {
      target.searchParams.set("a", sent.get("sample"));
      target.searchParams.set("b", sent.get("sample"));
    }
    location.replace(target);
  };
  followSent();
  addEventListener("hashchange", followSent);
  const marks = all("[data-mark]");
  const strata = all("[data-stratum]");
  let here = -1;
  const visible = () => [...table.tBodies[0].rows].filter((row) => !row.hidden);
  const filter = () => {
    const wanted = marks.filter((button) => button.ariaPressed === "true").map((button) => button.dataset.mark);
    for (const row of rows) {
      const own = row.dataset.marks.split(",");
      row.hidden = wanted.some((mark) => !own.includes(mark))
        || strata.some((select) => select.value && row.dataset[select.dataset.stratum] !== select.value);
    }
    find("#count").textContent = `${visible().length} of ${rows.length} problems are shown.`;
    sessionStorage.setItem("problems", JSON.stringify(visible().map((row) => row.dataset.problem)));
  };
  for (const button of marks) {
    const count = rows.filter((row) => row.dataset.marks.split(",").includes(button.dataset.mark)).length;
    button.append(` ${count}`);
    button.disabled = !count;
    button.addEventListener("click", () => {
      button.ariaPressed = button.ariaPressed === "true" ? "false" : "true";
      filter();
    });
  }
  for (const select of strata) select.addEventListener("change", filter);
  for (const [column, head] of [...table.tHead.rows[0].cells].entries()) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.ariaSort !== "ascending";
      for (const other of table.tHead.rows[0].cells) other.ariaSort = null;
      head.ariaSort = up ? "ascending" : "descending";
      const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const order = (a, b) => key(a).localeCompare(key(b), "en", { numeric: true });
      table.tBodies[0].append(...[...table.tBodies[0].rows].sort((a, b) => (up ? order(a, b) : order(b, a))));
      filter();
    });
  }
  const step = (by) => {
    const shown = visible();
    if (!shown.length) return;
    find("tr.here")?.classList.remove("here");
    here = Math.min(Math.max(here + by, 0), shown.length - 1);
    shown[here].classList.add("here");
    find("a", shown[here]).focus();
  };
  keys.j = () => step(1);
  keys.k = () => step(-1);
  filter();
}

function showProblem(sections) {
  // Neighbours are those of the table as it was last filtered and sorted.
  const problems = JSON.parse(sessionStorage.getItem("problems") ?? "[]");
  const place = problems.indexOf(query.get("problem"));
  for (const [id, neighbour] of [["next", problems[place + 1]], ["previous", problems[place - 1]]]) {
    const link = find(`#${id}`);
    if (place < 0 || !link || !neighbour) continue;
    const address = new URL(link.href);
    address.searchParams.set("problem", neighbour);
    link.href = address;
  }
  for (const form of all("form[method=get]:not([action])")) {
    for (const box of all("[name=blind]", form)) box.checked = query.get("blind") === "1";
    form.addEventListener("change", () => form.requestSubmit());
  }
  let here = sessionStorage.getItem("side") === "a" ? 0 : 1;
  const choose = (side) => {
    here = side;
    sessionStorage.setItem("side", sections[side].dataset.place);
    sections.forEach((section, i) => section.classList.toggle("here", i === side));
  };
  choose(here);
  sections.forEach((section, i) => section.addEventListener("click", () => choose(i)));
  for (const section of sections) {
    const strip = find(".strip", section);
    if (strip) drawStrip(strip, section.dataset.place);
    for (const slider of all("input[type=range]", section)) {
      const name = (at) => slider.dataset.steps.split(",")[at];
      slider.addEventListener("input", () => { find("output", section).value = name(slider.value); });
      slider.addEventListener("change", () => {
        const side = section.dataset.place === "a" ? "left" : "right";
        go({ [side]: `${slider.dataset.arm}:${name(slider.value)}`, [section.dataset.place]: null });
      });
    }
    for (const button of all("[data-word]", section)) button.addEventListener("click", () => judge(button, section));
  }
  const step = (by) => {
    const links = all(".strip a", sections[here]);
    if (links.length) {
      links[links.findIndex((link) => link.ariaCurrent) + by]?.click();
      return;
    }
    // A copy shows its responses under each other.
    const articles = all("article", sections[here]);
    const at = articles.findIndex((article) => article.getBoundingClientRect().bottom > 40);
    articles[Math.max(0, at + by)]?.scrollIntoView();
  };
  keys.j = () => step(1);
  keys.k = () => step(-1);
  keys.s = () => choose(1 - here);
  for (const word of ["right", "wrong", "unclear"]) {
    keys[word[0]] = () => find(`[data-word=${word}]`, sections[here])?.click();
  }
}

function drawStrip(strip, place) {
  const names = strip.dataset.names.split(",");
  [...strip.dataset.codes].forEach((code, sample) => {
    if (code === ".") return;
    const link = document.createElement("a");
    const target = new URLSearchParams(query);
    target.set(place, sample);
    link.href = `problem?${target}`;
    link.className = `v${code}`;
    link.title = link.ariaLabel = `sample ${sample}: ${names[code]}`;
    link.tabIndex = -1;
    if (String(sample) === strip.dataset.chosen) link.ariaCurrent = "true";
    strip.append(link);
  });
  const chosen = find("[aria-current]", strip);
  if (chosen) strip.scrollTop = chosen.offsetTop - strip.offsetTop - 30;
}

async function judge(button, section) {
  const article = button.closest("article");
  const judgement = new URLSearchParams(query);
  judgement.set("place", section.dataset.place);
  judgement.set("sample", article.dataset.sample);
  judgement.set("word", button.dataset.word);
  const reply = await fetch(`judge?${judgement}`, { method: "POST" });
  if (!reply.ok) {
    find("small", button.parentElement).textContent = ` not stored: ${await reply.text()}`;
    return;
  }
  for (const other of all("[data-word]", button.parentElement)) other.ariaPressed = String(other === button);
}
