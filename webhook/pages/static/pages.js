// Draws the figures of a page, and replaces what changed when the server tells of an event.
"use strict";
(() => {
  const CONFIG = { displayModeBar: false, doubleClick: "reset" };
  const NARROWEST_CELL = 4;
  const WIDEST_CELL = 36;
  const LEAST_LINE = 16;
  const LISTEN_AGAIN_MILLISECONDS = 60_000;
  const element = (id) => document.getElementById(id);
  let figures = {};

  // A grid of nodes has square cells, whatever the width of the page.
  function fitGrid(figure, width) {
    const { columns, rows } = figure.layout.meta;
    const { margin } = figure.layout;
    const room = width - margin.l - margin.r;
    const cell = Math.max(NARROWEST_CELL, Math.min(WIDEST_CELL, room / columns));
    figure.layout.xaxis.range = [-0.5, room / cell - 0.5];
    figure.layout.yaxis.range = [rows - 0.5, -0.5];
    // Names of zones need room between them, even where cells are small.
    const named = figure.layout.yaxis.tickvals;
    const gaps = named.slice(1).map((row, i) => row - named[i]);
    const height = Math.max(cell, LEAST_LINE / Math.min(...gaps));
    figure.layout.height = Math.ceil(rows * height) + margin.t + margin.b;
    const gap = cell > 8 ? 2 : 1;
    for (const trace of figure.data) trace.marker.size = Math.max(2, cell - gap);
  }

  function draw() {
    for (const [id, given] of Object.entries(figures)) {
      const place = element(id);
      if (!place?.clientWidth) continue; // in details that are closed
      const figure = structuredClone(given);
      const color = getComputedStyle(place).color;
      figure.layout.font = { ...figure.layout.font, color };
      figure.layout.width = place.clientWidth;
      if (figure.layout.meta?.columns) fitGrid(figure, place.clientWidth);
      Plotly.react(place, figure.data, figure.layout, CONFIG);
    }
  }

  const partsOf = (root) =>
    Array.from(root.querySelectorAll(".live[id], .plot[id]"), (part) => part.id).join();

  // Replaces live parts that changed; the focus stays where it is, and details stay open.
  // Where parts came or went, such as a first plot, it replaces everything.
  function replaceParts(body) {
    const fresh = new DOMParser().parseFromString(body, "text/html");
    if (partsOf(fresh) !== partsOf(document)) {
      element("body").replaceChildren(...document.importNode(fresh.body, true).childNodes);
      return;
    }
    for (const part of fresh.querySelectorAll(".live[id]")) {
      const old = element(part.id);
      if (!old || old.innerHTML === part.innerHTML) continue;
      const focused = old.contains(document.activeElement) ? document.activeElement : null;
      const key = focused && (focused.id || focused.getAttribute("href"));
      for (const open of old.querySelectorAll("details[open][id]")) {
        fresh.getElementById(open.id)?.setAttribute("open", "");
      }
      old.replaceChildren(...document.importNode(part, true).childNodes);
      if (!key) continue;
      for (const next of old.querySelectorAll("a, summary, button")) {
        if (next.id === key || next.getAttribute("href") === key) next.focus({ preventScroll: true });
      }
    }
  }

  function follow() {
    const state = element("state");
    const pause = element("pause");
    const url = `data/${document.body.dataset.page}${location.search}`;
    let isFetching = false;
    let isBehind = false;
    let isPaused = false;

    async function refresh() {
      if (isPaused || isFetching) {
        isBehind = true;
        return;
      }
      isFetching = true;
      isBehind = false;
      try {
        const response = await fetch(url, { headers: { Accept: "application/json" } });
        if (!response.ok) throw new Error(`${response.status} ${response.statusText}`);
        const page = await response.json();
        replaceParts(page.body);
        figures = page.figures;
        draw();
        state.textContent = `live, updated ${new Date().toLocaleTimeString()}`;
      } catch (error) {
        state.textContent = `no update: ${error.message}`;
      } finally {
        isFetching = false;
      }
      if (isBehind) refresh();
    }

    pause.addEventListener("click", () => {
      isPaused = !isPaused;
      pause.setAttribute("aria-pressed", String(isPaused));
      state.textContent = isPaused ? "paused" : "live";
      if (!isPaused && isBehind) refresh();
    });
    let events;
    function listen() {
      events = new EventSource("events");
      events.addEventListener("message", refresh);
      events.addEventListener("error", () => {
        state.textContent = "not connected, trying again";
        if (events.readyState !== EventSource.CLOSED) return;
        // Refused, as too many listen: the browser does not try again by itself.
        state.textContent = "not connected, trying again in a minute";
        setTimeout(listen, LISTEN_AGAIN_MILLISECONDS);
      });
    }
    listen();
    addEventListener("pagehide", () => events.close());
    addEventListener("pageshow", (shown) => {
      if (!shown.persisted) return;
      listen();
      refresh();
    });
  }

  figures = JSON.parse(element("figures").textContent);
  draw();
  let resizing = 0;
  addEventListener("resize", () => {
    cancelAnimationFrame(resizing);
    resizing = requestAnimationFrame(draw);
  });
  document.addEventListener("toggle", draw, true); // details that open
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  if ("live" in document.body.dataset) follow();
})();
