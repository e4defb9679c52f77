"use strict";
// Replaces each static picture by its live chart, once that is drawn; a chart that fails keeps its picture.
(() => {
  const specs = JSON.parse(document.getElementById("specs").textContent);
  const draw = async (figure) => {
    const live = figure.querySelector(".live");
    const spec = { ...specs[figure.id] };
    live.hidden = false;
    spec.width = live.clientWidth;
    try {
      const { view } = await window.vegaEmbed(live, spec, { actions: false, renderer: "svg", ast: true });
      window.addEventListener("resize", () => view.width(live.clientWidth).runAsync());
      figure.querySelector(".static").hidden = true;
      figure.dataset.drawn = "yes";
    } catch (error) {
      live.hidden = true;
      console.error(figure.id, error);
    }
  };
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) {
        seen.unobserve(entry.target);
        draw(entry.target);
      }
    }
  }, { rootMargin: "400px" });
  document.querySelectorAll("figure[id^=chart-]").forEach((figure) => seen.observe(figure));
})();
