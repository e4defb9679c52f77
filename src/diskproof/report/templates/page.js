"use strict";
// A button copies the text beside it; where the browser refuses, the text is selected for Ctrl+C.
document.querySelectorAll(".paste button").forEach((button) => {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const text = button.closest(".paste").querySelector("pre");
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(text);
      button.textContent = document.execCommand("copy") ? "copied" : "selected: Ctrl+C";
    }
  });
});

// Replaces each static picture by its live chart, once that is drawn. Where anything fails (an old
// browser, a broken chart) the pictures and tables stay.
(async () => {
  const unpack = async (id) => {
    const packed = atob(document.getElementById(id).textContent);
    const bytes = Uint8Array.from(packed, (char) => char.charCodeAt(0));
    const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(plain).text();
  };

  const [vega, specs] = await Promise.all([unpack("vega"), unpack("specs").then(JSON.parse)]);
  const script = document.createElement("script");
  script.textContent = vega; // the page's policy admits this text by its hash
  document.head.append(script);

  const draw = async (figure) => {
    const live = figure.querySelector(".live");
    live.hidden = false;
    try {
      const spec = { ...specs[figure.id], width: live.clientWidth };
      const options = { actions: false, renderer: "svg", ast: true };
      const { view } = await window.vegaEmbed(live, spec, options);
      window.addEventListener("resize", () => view.width(live.clientWidth).runAsync());
      figure.querySelector(".static").hidden = true;
      figure.dataset.drawn = "yes";
    } catch (error) {
      live.hidden = true;
      console.error(figure.id, error);
    }
  };

  const near = (entries) => entries.filter((entry) => entry.isIntersecting);
  const seen = new IntersectionObserver((entries) => {
    for (const { target } of near(entries)) {
      seen.unobserve(target);
      draw(target);
    }
  }, { rootMargin: "400px" });
  document.querySelectorAll("figure[id^=chart-]").forEach((figure) => seen.observe(figure));
})();
