"use strict";

// Draws each figure in the place of its picture, which stays where that fails, and wires its legend and its choice.
(() => {
  const specs = JSON.parse(document.getElementById("specs").textContent);
  const quiet = { mode: "vega-lite", renderer: "svg", actions: false, ast: true, defaultStyle: false };
  const tooltip = { disableDefaultStyle: true, theme: "page", offsetX: 14, offsetY: 14 };

  async function draw(figure) {
    const plot = figure.querySelector(".plot");
    const picture = plot.querySelector("img");
    const place = document.createElement("div");
    place.className = "chart";
    plot.append(place);
    picture.hidden = true;
    try {
      const { view } = await vegaEmbed(place, specs[figure.dataset.figure], { ...quiet, tooltip });
      picture.remove();
      legend(figure, view);
      choice(figure, view);
    } catch (error) {
      place.remove();
      picture.hidden = false;
      throw error;
    }
  }

  function legend(figure, view) {
    const buttons = [...figure.querySelectorAll("button[data-series]")];
    for (const button of buttons) {
      button.disabled = false;
      button.addEventListener("click", () => {
        button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
        const hidden = buttons.filter((each) => each.getAttribute("aria-pressed") !== "true");
        view.signal("hidden", hidden.map((each) => Number(each.dataset.series))).runAsync();
      });
    }
  }

  function choice(figure, view) {
    const select = figure.querySelector("select");
    if (select) {
      select.closest("label").hidden = false;
      select.addEventListener("change", () => view.signal("picked", Number(select.value)).runAsync());
    }
  }

  document.documentElement.classList.add("drawn");
  for (const figure of document.querySelectorAll("figure[data-figure]")) {
    draw(figure);
  }
})();
