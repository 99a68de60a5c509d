"use strict";
// Keeps the reader's judgements in the page and saves them as one JSON file. Nothing is sent.
const facts = JSON.parse(document.getElementById("facts").textContent);
const state = document.getElementById("state");

function judgements() {
  const words = {};
  for (const chosen of document.querySelectorAll("input[type=radio]:checked")) words[chosen.name] = chosen.value;
  return words;
}

function notes() {
  const written = {};
  for (const note of document.querySelectorAll("input.note")) {
    if (note.value.trim()) written[note.dataset.chain] = note.value.trim();
  }
  return written;
}

function show() {
  const words = judgements();
  state.textContent = Object.keys(words).length + " of " + facts.chains.length + " judged";
  for (const article of document.querySelectorAll("article")) {
    article.classList.toggle("done", Boolean(article.querySelector("input:checked")));
  }
}

document.addEventListener("change", show);
document.getElementById("save").addEventListener("click", () => {
  const reviewer = document.getElementById("reviewer").value.trim();
  if (!reviewer) { state.textContent = "Enter your name first."; return; }
  const record = { format: facts.format, sheet: facts.sheet, reviewer, judgements: judgements(), notes: notes() };
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(record, null, 1)], { type: "application/json" }));
  link.download = "judgements-" + facts.sheet + "-" + reviewer.replace(/[^A-Za-z0-9]+/g, "-") + ".json";
  link.click();
  URL.revokeObjectURL(link.href);
});
show();
