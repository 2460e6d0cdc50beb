// The graph of a run as known to the page, and what is drawn of it: nodes, or groups of them.
//
// Up to MOST nodes are drawn individually. For more, nodes with the same distance from the start are a group, long rows
// of groups are merged, and a large group opens into smaller ones: never more than MOST boxes are drawn.

export const MOST = 2000;
/** Groups that stand beside each other, and members that are drawn when a group opens. */
const GROUPS = 20;
const MEMBERS = 400;
const SEPARATOR = "\u0000";
/** Whoever tells of a node leaves these out when there are none. */
const NONE = { reason: undefined, error: undefined };

/** `each[2]` is an item of `each`; anything else is of none. */
export function mapOf(id) {
  return id.endsWith("]") ? id.slice(0, id.indexOf("[")) : null;
}

export class Model {
  /** Node id -> {node_id, title, status, tool, attempts, reason, started_at, ended_at, error}. */
  nodes = new Map();
  /** Id of a node with items -> item id -> the same of the item. */
  items = new Map();
  edges = [];
  needs = new Map();
  neededBy = new Map();
  /** Node id -> how many edges the longest way from the beginning has. */
  levels = new Map();
  /** Key of each group that is open -> what it is called. */
  open = new Map();
  /** Whether nodes that belong together, such as those of a round, are drawn as one. */
  isFolded = false;
  /** Whether a node was told of that is not in the graph. */
  lacks = false;

  /** Takes nodes and edges as `GET /v1/runs/ID/graph` has them; what an event has told of a node since then stays. */
  take({ nodes, edges, cursor }) {
    const before = this.nodes;
    const joined = (node, known) => ({ ...known, ...NONE, ...node, ...(isLater(known?.told, cursor) ? known.heard : {}) });
    this.nodes = new Map(nodes.map((node) => [node.node_id, joined(node, before.get(node.node_id))]));
    this.edges = edges.filter(([from, to]) => this.nodes.has(from) && this.nodes.has(to));
    this.needs = new Map(nodes.map(({ node_id: id }) => [id, []]));
    this.neededBy = new Map(nodes.map(({ node_id: id }) => [id, []]));
    for (const [from, to] of this.edges) {
      this.needs.get(to).push(from);
      this.neededBy.get(from).push(to);
    }
    this.levels = levelsOf([...this.nodes.keys()], this.needs, this.neededBy);
    this.lacks = false;
    this.#groups = null;
  }

  /** Takes what an event, with its id, tells of nodes; returns the ids of those in the graph that are others now. */
  change(told, at = null) {
    const changed = new Set();
    for (const { node_id: id, ...rest } of told) {
      const map = this.nodes.has(id) ? null : mapOf(id);
      if (map !== null && this.nodes.has(map)) {
        if (!this.items.has(map)) this.items.set(map, new Map());
        const items = this.items.get(map);
        items.set(id, { ...items.get(id), ...NONE, node_id: id, ...rest });
        changed.add(map);
      } else if (this.nodes.has(id)) {
        const heard = { ...NONE, ...rest };
        this.nodes.set(id, { ...this.nodes.get(id), ...heard, heard, told: at });
        changed.add(id);
      } else {
        this.lacks = true;
      }
    }
    return changed;
  }

  /** How many nodes are in which state. */
  counts(ids = this.nodes.keys()) {
    const counts = {};
    for (const id of ids) {
      const { status } = this.nodes.get(id);
      counts[status] = (counts[status] ?? 0) + 1;
    }
    return counts;
  }

  /** Tells whether a run counts its nodes otherwise than they are known here. */
  isBehind(counts) {
    const known = this.counts();
    return [...new Set([...Object.keys(counts), ...Object.keys(known)])].some((s) => (counts[s] ?? 0) !== (known[s] ?? 0));
  }

  /** A node or an item. */
  at(id) {
    return this.nodes.get(id) ?? this.items.get(mapOf(id))?.get(id) ?? null;
  }

  #groups = null;

  /** What stands for all nodes where they are too many: groups by levels, each {key, label, members}. */
  #tops() {
    if (this.#groups) return this.#groups;
    const levels = [];
    for (const [id, level] of this.levels) (levels[level] ??= []).push(id);
    const each = Math.ceil(levels.length / GROUPS);
    this.#groups = [];
    for (let at = 0; at < levels.length; at += each) {
      const last = Math.min(at + each, levels.length) - 1;
      const label = at === last ? `Level ${at + 1}` : `Levels ${at + 1} to ${last + 1}`;
      this.#groups.push({ key: `level${SEPARATOR}${at}`, label, members: levels.slice(at, last + 1).flat() });
    }
    return this.#groups;
  }

  /** Tells whether some nodes say what they belong to. */
  get hasParts() {
    return this.nodes.size <= MOST && [...this.nodes.values()].some((node) => node.group);
  }

  /** Nodes by what they say they belong to, each {key, label, members}; those that say nothing by themselves. */
  *#folded() {
    const named = new Map();
    for (const { node_id: id, group } of this.nodes.values()) {
      const key = group ? `group${SEPARATOR}${group}` : id;
      if (!named.has(key)) named.set(key, { key, label: group ?? id, members: [] });
      named.get(key).members.push(id);
    }
    yield* named.values();
  }

  /** A group cut into smaller ones, in its order. */
  #parts(group) {
    const count = Math.min(GROUPS, Math.ceil(group.members.length / MEMBERS) * 2);
    const each = Math.ceil(group.members.length / count);
    const parts = [];
    for (let at = 0; at < group.members.length; at += each) {
      const members = group.members.slice(at, at + each);
      const label = `${group.label}, ${(at + 1).toLocaleString("en")} to ${(at + members.length).toLocaleString("en")}`;
      parts.push({ key: `${group.key}${SEPARATOR}${at}`, label, members });
    }
    return parts;
  }

  /** Opens or closes a group; of those that were open, the oldest are closed where all would be too many. */
  toggle(key, label = key) {
    if (this.open.delete(key)) {
      for (const each of [...this.open.keys()]) if (isPartOf(each, key)) this.open.delete(each);
      return;
    }
    this.open.set(key, label);
    while (this.open.size > 1 && this.boxes().boxes.length > MOST) {
      const oldest = [...this.open.keys()].find((each) => each !== key && !isPartOf(key, each));
      if (oldest === undefined) return;
      this.toggle(oldest);
    }
  }

  /** Opens the groups that a node is in, so that it is drawn. */
  reveal(id) {
    const node = this.nodes.has(id) ? id : mapOf(id);
    if (this.nodes.size <= MOST || !this.nodes.has(node)) return;
    let groups = this.#tops();
    for (;;) {
      const group = groups.find((each) => each.members.includes(node));
      if (!this.open.has(group.key)) this.toggle(group.key, group.label);
      if (group.members.length <= MEMBERS) return;
      groups = this.#parts(group);
    }
  }

  /**
   * What is drawn.
   *
   * Returns boxes, each {key, id} of a node, {key, id, of} of an item, or {key, label, members, isOpen} of a group, and
   * edges [from, to] between their keys, each once; `stands` tells by which key a node is drawn.
   */
  boxes() {
    const boxes = [];
    const stands = new Map();
    const add = (box, ids) => {
      boxes.push(box);
      for (const id of ids) stands.set(id, box.key);
    };
    const put = (group) => {
      if (!this.open.has(group.key)) return add(group, group.members);
      if (group.members.length > MEMBERS) return this.#parts(group).forEach(put);
      return group.members.forEach((id) => add({ key: id, id, within: group }, [id]));
    };
    const one = (id) => add({ key: id, id }, [id]);
    if (this.nodes.size > MOST) this.#tops().forEach(put);
    else if (!this.isFolded) [...this.nodes.keys()].forEach(one);
    else for (const group of this.#folded()) this.nodes.has(group.key) ? one(group.key) : put(group);
    const edges = new Map();
    for (const [from, to] of this.edges) {
      const [a, b] = [stands.get(from), stands.get(to)];
      if (a !== b) edges.set(a + SEPARATOR + SEPARATOR + b, [a, b]);
    }
    const drawn = [...edges.values()];
    for (const box of [...boxes]) {
      const items = box.id !== undefined && this.open.has(itemsKey(box.id)) ? this.items.get(box.id) : undefined;
      for (const id of [...(items?.keys() ?? [])].slice(0, MEMBERS)) {
        boxes.push({ key: id, id, of: box.id });
        drawn.push([box.key, id]);
      }
    }
    return { boxes, edges: drawn, stands };
  }
}

/** Tells whether one place in the history of a run, such as `1-145`, is behind another one. */
function isLater(one, other) {
  if (!one || !other) return false;
  const [[run, event], [otherRun, otherEvent]] = [one, other].map((place) => place.match(/\d+/g).map(Number));
  return run === otherRun ? event > otherEvent : run > otherRun;
}

/** Tells whether a group lies in another one. */
export function isPartOf(key, other) {
  return key.startsWith(other + SEPARATOR);
}

/** The key under which the items of a node are open. */
export function itemsKey(id) {
  return `items${SEPARATOR}${id}`;
}

/** Node id -> level; a node that is in a circle, which no plan has, is in the first. */
function levelsOf(ids, needs, neededBy) {
  const levels = new Map(ids.map((id) => [id, 0]));
  const missing = new Map(ids.map((id) => [id, needs.get(id).length]));
  const ready = ids.filter((id) => missing.get(id) === 0);
  for (let at = 0; at < ready.length; at += 1) {
    const level = levels.get(ready[at]) + 1;
    for (const next of neededBy.get(ready[at])) {
      if (level > levels.get(next)) levels.set(next, level);
      missing.set(next, missing.get(next) - 1);
      if (missing.get(next) === 0) ready.push(next);
    }
  }
  return levels;
}
