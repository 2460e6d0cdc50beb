// The current page. A change of the route starts another page.

let pageNumber = 0;
let arrival = "";

/** Goes to an address such as `#/runs/run-1?node=sum`; `message` becomes the status line of the page there. */
export function go(address, message = "") {
  arrival = message;
  // Setting the same address causes no `hashchange` event.
  if (location.hash === address) turnPage();
  else location.hash = address;
}

/** Start a page. Its status line shows the message of the navigation, if any. */
export function turnPage() {
  pageNumber += 1;
  document.getElementById("status-line").textContent = arrival;
  arrival = "";
}

/** A function that returns whether the current page is still shown, for long operations. */
export function onThisPage() {
  const mine = pageNumber;
  return () => mine === pageNumber;
}
