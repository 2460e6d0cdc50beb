// The graph of a run as known to the page, and its boxes: nodes, or groups of nodes.
//
// Up to MAX_BOXES nodes are drawn individually. For more, nodes with the same distance from the start are a group, long
// rows of groups are merged, and a large group opens into smaller ones: never more than MAX_BOXES boxes are drawn.

export const MAX_BOXES = 2000;
/** Maximum groups that are drawn side by side, and members that are drawn when a group opens. */
const GROUPS = 20;
const MEMBERS = 400;
const SEPARATOR = "\u0000";
/** Fields that documents of nodes omit if they are empty. */
const NONE = { reason: undefined, error: undefined };

/** The node of an item: `each` for `each[2]`; null for any other id. */
export function mapOf(id) {
  return id.endsWith("]") ? id.slice(0, id.indexOf("[")) : null;
}

export class Model {
  /** Node id -> {node_id, title, status, tool, attempts, reason, started_at, ended_at, error}. */
  nodes = new Map();
  /** Id of a node with items -> item id -> document of the item, with the same fields. */
  items = new Map();
  edges = [];
  needs = new Map();
  neededBy = new Map();
  /** Node id -> number of edges of the longest path to it from the start. */
  levels = new Map();
  /** Key of each open group -> its label. */
  open = new Map();
  /** Whether the nodes of a group, such as a round, are drawn as one box. */
  isFolded = false;
  /** Whether an event named a node that is not in the graph. */
  lacks = false;

  /** Load nodes and edges from `GET /v1/runs/ID/graph`; newer fields from events stay. */
  take({ nodes, edges, cursor }) {
    const before = this.nodes;
    const joined = (node, known) => ({ ...known, ...NONE, ...node, ...(isLater(known?.changedAt, cursor) ? known.changes : {}) });
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

  /** Apply the node fields of an event with its id; return the ids of the changed nodes. */
  change(events, at = null) {
    const changed = new Set();
    for (const { node_id: id, ...rest } of events) {
      const map = this.nodes.has(id) ? null : mapOf(id);
      if (map !== null && this.nodes.has(map)) {
        if (!this.items.has(map)) this.items.set(map, new Map());
        const items = this.items.get(map);
        items.set(id, { ...items.get(id), ...NONE, node_id: id, ...rest });
        changed.add(map);
      } else if (this.nodes.has(id)) {
        const changes = { ...NONE, ...rest };
        this.nodes.set(id, { ...this.nodes.get(id), ...changes, changes, changedAt: at });
        changed.add(id);
      } else {
        this.lacks = true;
      }
    }
    return changed;
  }

  /** State -> number of nodes. */
  counts(ids = this.nodes.keys()) {
    const counts = {};
    for (const id of ids) {
      const { status } = this.nodes.get(id);
      counts[status] = (counts[status] ?? 0) + 1;
    }
    return counts;
  }

  /** Whether the counts of a run differ from the counts of the known nodes. */
  isBehind(counts) {
    const known = this.counts();
    return [...new Set([...Object.keys(counts), ...Object.keys(known)])].some((s) => (counts[s] ?? 0) !== (known[s] ?? 0));
  }

  /** A node or an item. */
  at(id) {
    return this.nodes.get(id) ?? this.items.get(mapOf(id))?.get(id) ?? null;
  }

  #groups = null;

  /** Groups of all nodes by level, for graphs with too many nodes; each {key, label, members}. */
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

  /** Whether any node has a group. */
  get hasParts() {
    return this.nodes.size <= MAX_BOXES && [...this.nodes.values()].some((node) => node.group);
  }

  /** Nodes by group, each {key, label, members}; a node without a group is a group of its own. */
  *#folded() {
    const named = new Map();
    for (const { node_id: id, group } of this.nodes.values()) {
      const key = group ? `group${SEPARATOR}${group}` : id;
      if (!named.has(key)) named.set(key, { key, label: group ?? id, members: [] });
      named.get(key).members.push(id);
    }
    yield* named.values();
  }

  /** A group split into smaller groups, in its order. */
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

  /** Open or close a group; the oldest open groups are closed if there would be too many boxes. */
  toggle(key, label = key) {
    if (this.open.delete(key)) {
      for (const each of [...this.open.keys()]) if (isPartOf(each, key)) this.open.delete(each);
      return;
    }
    this.open.set(key, label);
    while (this.open.size > 1 && this.boxes().boxes.length > MAX_BOXES) {
      const oldest = [...this.open.keys()].find((each) => each !== key && !isPartOf(key, each));
      if (oldest === undefined) return;
      this.toggle(oldest);
    }
  }

  /** Open the groups of a node, so that it is drawn. */
  reveal(id) {
    const node = this.nodes.has(id) ? id : mapOf(id);
    if (this.nodes.size <= MAX_BOXES || !this.nodes.has(node)) return;
    let groups = this.#tops();
    for (;;) {
      const group = groups.find((each) => each.members.includes(node));
      if (!this.open.has(group.key)) this.toggle(group.key, group.label);
      if (group.members.length <= MEMBERS) return;
      groups = this.#parts(group);
    }
  }

  /**
   * The boxes and edges to draw.
   *
   * A box is {key, id} for a node, {key, id, of} for an item, or {key, label, members, isOpen} for a group. Edges are
   * [from, to] between keys, without duplicates. `boxOf` maps a node to the key of its box.
   */
  boxes() {
    const boxes = [];
    const boxOf = new Map();
    const add = (box, ids) => {
      boxes.push(box);
      for (const id of ids) boxOf.set(id, box.key);
    };
    const put = (group) => {
      if (!this.open.has(group.key)) return add(group, group.members);
      if (group.members.length > MEMBERS) return this.#parts(group).forEach(put);
      return group.members.forEach((id) => add({ key: id, id, within: group }, [id]));
    };
    const one = (id) => add({ key: id, id }, [id]);
    if (this.nodes.size > MAX_BOXES) this.#tops().forEach(put);
    else if (!this.isFolded) [...this.nodes.keys()].forEach(one);
    else for (const group of this.#folded()) this.nodes.has(group.key) ? one(group.key) : put(group);
    const edges = new Map();
    for (const [from, to] of this.edges) {
      const [a, b] = [boxOf.get(from), boxOf.get(to)];
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
    return { boxes, edges: drawn, boxOf };
  }
}

/** Whether a cursor in the history of a run, such as `1-145`, is after another one. */
function isLater(one, other) {
  if (!one || !other) return false;
  const [[run, event], [otherRun, otherEvent]] = [one, other].map((place) => place.match(/\d+/g).map(Number));
  return run === otherRun ? event > otherEvent : run > otherRun;
}

/** Whether a group is part of another group. */
export function isPartOf(key, other) {
  return key.startsWith(other + SEPARATOR);
}

/** The key of the open items of a node. */
export function itemsKey(id) {
  return `items${SEPARATOR}${id}`;
}

/** Node id -> level. Valid plans have no cycles; a node of a cycle would be in the first level. */
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
