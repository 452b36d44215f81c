"use strict";
// Pages work without this file; it gives them keys.
const follow = way => document.querySelector(`a[rel=${way}]`)?.click();
const keys = {
  "/": () => document.querySelector("input[type=search]").focus(),
  n: () => follow("next"),
  p: () => follow("prev"),
  t: () => { location.href = "/"; },
  l: () => { location.href = "/lineage"; },
};
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) return;
  const act = Object.hasOwn(keys, event.key) ? keys[event.key] : null;
  if (act) { event.preventDefault(); act(); }
});
// A key that is left empty in a form is not asked for.
for (const form of document.forms) form.addEventListener("submit", () => {
  for (const input of form.querySelectorAll("input:not([required])")) input.disabled = input.value === "";
});
// The newest snapshots stand at the right end of the time line.
for (const line of document.querySelectorAll(".timeline")) line.scrollLeft = line.scrollWidth;
