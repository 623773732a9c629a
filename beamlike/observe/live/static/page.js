// Follows the run: the server sends the main part of the page whenever it differs, and only what differs is changed.
"use strict";

(() => {
  const main = document.getElementById("main");
  const link = document.getElementById("link");

  function say(text) {
    if (link.textContent !== text) link.textContent = text;
  }

  const callbacks = {
    // What the user types or opens stays; charts draw themselves.
    beforeNodeMorphed(before, after) {
      if (before.nodeType !== Node.ELEMENT_NODE) return true;
      if (before.matches(".charts")) {
        if (before.dataset.version !== after.dataset.version) {
          before.dataset.version = after.dataset.version;
          window.beamlikeCharts(before);
        }
        return false;
      }
      return !before.matches("form");
    },
    beforeAttributeUpdated: (name) => name !== "open",
  };

  function follow() {
    const changes = new EventSource(location.href.split("#")[0]);
    changes.onopen = () => say("live");
    changes.onerror = () => say("not live: waiting for the server");
    changes.onmessage = (event) => {
      Idiomorph.morph(main, event.data, { morphStyle: "innerHTML", callbacks });
      say("live");
    };
    addEventListener("pagehide", () => changes.close());
  }

  for (const charts of main.querySelectorAll(".charts")) window.beamlikeCharts(charts);
  follow();
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
})();
