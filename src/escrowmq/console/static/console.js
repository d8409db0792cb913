// Pages refresh parts of themselves (hx-trigger). A part in which somebody is typing or has opened a form is left alone,
// and so is a page that nobody sees. A log that is followed is open without anybody having opened it.
"use strict";

document.addEventListener("htmx:beforeRequest", (event) => {
  const part = event.detail.target;
  if (document.hidden || part.contains(document.activeElement) || part.querySelector("details[open]:not([data-follow])")) {
    event.preventDefault();
  }
});

// The query of the page stays the query of its parts.
document.addEventListener("htmx:configRequest", (event) => {
  for (const [name, value] of new URLSearchParams(location.search)) {
    if (!(name in event.detail.parameters)) event.detail.parameters[name] = value;
  }
});

// A file that is chosen is shown in the text field that is sent.
document.addEventListener("change", async (event) => {
  const chosen = event.target;
  if (chosen.dataset.into && chosen.files.length) {
    document.getElementById(chosen.dataset.into).value = await chosen.files[0].text();
  }
});

// A text is copied. Without HTTPS, browsers have no clipboard for pages, so the text is selected and copied as by the keyboard.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const text = document.getElementById(button.dataset.copy);
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text.textContent);
  } else {
    getSelection().selectAllChildren(text);
    document.execCommand("copy");
  }
  button.textContent = "Copied";
});

// On a phone the menu is wider than the page.
document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
