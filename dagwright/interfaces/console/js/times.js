// Times and durations as text.

/** Milliseconds as `40 ms`, `1.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`. */
export function durationText(ms) {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

/** The duration between two times, or from a start until now. Empty if there is no start. */
export function timeBetweenText(from, to) {
  if (!from) return "";
  return durationText((to ? Date.parse(to) : Date.now()) - Date.parse(from));
}

/** An RFC 3339 time in the local time zone, with the date unless it is today. */
export function timeText(text) {
  if (!text) return "";
  const date = new Date(text);
  const clock = date.toLocaleTimeString([], { hour12: false });
  return date.toDateString() === new Date().toDateString() ? clock : `${date.toLocaleDateString()} ${clock}`;
}
