// Keeps an open page true: when the server says "look", the page is fetched again and the regions
// that differ are swapped. Without this file every page reads the same, as of when it was loaded.

const FALLBACK_MS = 5000;
const FRAME_MS = 500;
const RETRY_FRAME_MS = 4000;
let tag = "";
let isLooking = false;
let isPaused = false;

async function look() {
  if (isLooking || isPaused || document.hidden) return;
  isLooking = true;
  try {
    const answer = await fetch(location.href, { headers: tag ? { "If-None-Match": tag } : {} });
    if (answer.redirected) location.reload(); // the session is over
    if (answer.status !== 200) return;
    tag = answer.headers.get("etag") ?? "";
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const region of document.querySelectorAll("[data-live]")) swap(region, fresh.getElementById(region.id));
  } catch {
    // The server is away; the mark below says so, and the next event tries again.
    setStale(true);
    return;
  } finally {
    isLooking = false;
  }
  setStale(false);
}

function swap(region, fresh) {
  if (!fresh) return;
  if (region.className !== fresh.className) region.className = fresh.className;
  if (region.innerHTML === fresh.innerHTML) return;
  const scrolled = [...region.querySelectorAll(".wide")].map((one) => one.scrollLeft);
  const focused = region.contains(document.activeElement) ? nameOf(document.activeElement) : null;
  region.replaceChildren(...fresh.childNodes);
  region.dispatchEvent(new Event("swapped", { bubbles: true })); // for explore.js
  [...region.querySelectorAll(".wide")].forEach((one, index) => (one.scrollLeft = scrolled[index] ?? 0));
  if (focused) [...region.querySelectorAll("a, .wide")].find((one) => nameOf(one) === focused)?.focus({ preventScroll: true });
}

function nameOf(element) {
  return element.getAttribute("href") ?? element.getAttribute("aria-label");
}

function setStale(isStale) {
  document.body.classList.toggle("stale", isStale);
}

function listen() {
  const source = new EventSource("/events");
  let timer = 0;
  source.addEventListener("look", look);
  source.addEventListener("error", () => {
    setStale(source.readyState !== EventSource.OPEN);
    // Closed for good, such as when too many pages are open: look without being told.
    if (source.readyState === EventSource.CLOSED && !timer) timer = setInterval(look, FALLBACK_MS);
  });
  source.addEventListener("open", () => setStale(false));
}

function showFrames(image) {
  const address = image.getAttribute("src");
  let number = 0;
  const next = () => {
    if (isPaused || document.hidden) setTimeout(next, FRAME_MS);
    else image.src = `${address}?n=${++number}`;
  };
  // A broken picture says less than words do.
  const show = (isFrame) => {
    image.hidden = !isFrame;
    image.parentElement.querySelector("[data-no-frame]").hidden = isFrame;
    setTimeout(next, isFrame ? FRAME_MS : RETRY_FRAME_MS);
  };
  image.addEventListener("load", () => show(true));
  image.addEventListener("error", () => show(false));
  if (image.complete) show(image.naturalWidth > 0);
}

const pause = document.querySelector("[data-pause]");
if (pause) {
  pause.hidden = false;
  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.setAttribute("aria-pressed", String(isPaused));
    look();
  });
}
if (document.querySelector("[data-live]")) listen();
for (const image of document.querySelectorAll("[data-frames]")) showFrames(image);
