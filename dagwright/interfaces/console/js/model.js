// The graph of a run that the page has loaded, and its boxes: nodes, or groups of nodes.
//
// Up to MAX_BOXES nodes are drawn individually. In larger graphs, nodes of neighbouring levels form at most MAX_GROUPS
// groups, and a large group opens into smaller groups. At most MAX_BOXES boxes are drawn.

export const MAX_BOXES = 2000;
/** Maximum number of groups of a graph, or of parts of a group. */
const MAX_GROUPS = 20;
/** Maximum number of nodes that are drawn for an open group. */
const MAX_MEMBERS = 400;
const SEPARATOR = "\u0000";
/** Defaults of fields that documents of nodes omit. */
const EMPTY_FIELDS = { reason: undefined, error: undefined };

/** The map node of an item ID: `each` for `each[2]`; null for the ID of a node. */
export function mapNodeOf(id) {
  return id.endsWith("]") ? id.slice(0, id.indexOf("[")) : null;
}

export class Model {
  /** Node id -> {node_id, title, status, tool, attempts, reason, started_at, ended_at, error}. */
  nodes = new Map();
  /** Id of a node with items -> item id -> document of the item, with the same fields. */
  items = new Map();
  edges = [];
  dependencies = new Map();
  dependents = new Map();
  /** Node id -> number of edges of the longest path that ends at the node. */
  levels = new Map();
  /** Key of each open group -> its label. */
  open = new Map();
  /** Whether the nodes of a group, such as a round, are drawn as one box. */
  isFolded = false;
  /** Whether an event named a node that is not in the graph. */
  hasUnknownNodes = false;

  /** Load nodes and edges from `GET /v1/runs/ID/graph`; fields from newer events are kept. */
  load({ nodes, edges, cursor }) {
    const loadedNodes = this.nodes;
    const mergeNode = (node, known) => ({ ...known, ...EMPTY_FIELDS, ...node, ...(isLater(known?.changedAt, cursor) ? known.changes : {}) });
    this.nodes = new Map(nodes.map((node) => [node.node_id, mergeNode(node, loadedNodes.get(node.node_id))]));
    this.edges = edges.filter(([from, to]) => this.nodes.has(from) && this.nodes.has(to));
    this.dependencies = new Map(nodes.map(({ node_id: id }) => [id, []]));
    this.dependents = new Map(nodes.map(({ node_id: id }) => [id, []]));
    for (const [from, to] of this.edges) {
      this.dependencies.get(to).push(from);
      this.dependents.get(from).push(to);
    }
    this.levels = levelsOf([...this.nodes.keys()], this.dependencies, this.dependents);
    this.hasUnknownNodes = false;
    this.#groups = null;
  }

  /** Apply events of nodes that were sent together; `cursor` is their event ID. Return the IDs of the changed nodes. */
  applyEvents(events, cursor = null) {
    const changed = new Set();
    for (const { node_id: id, ...fields } of events) {
      const map = this.nodes.has(id) ? null : mapNodeOf(id);
      if (map !== null && this.nodes.has(map)) {
        if (!this.items.has(map)) this.items.set(map, new Map());
        const items = this.items.get(map);
        items.set(id, { ...items.get(id), ...EMPTY_FIELDS, node_id: id, ...fields });
        changed.add(map);
      } else if (this.nodes.has(id)) {
        const changes = { ...EMPTY_FIELDS, ...fields };
        this.nodes.set(id, { ...this.nodes.get(id), ...changes, changes, changedAt: cursor });
        changed.add(id);
      } else {
        this.hasUnknownNodes = true;
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

  /** Whether the node counts of a run differ from those of the loaded nodes. */
  differsFrom(counts) {
    const loadedCounts = this.counts();
    const states = new Set([...Object.keys(counts), ...Object.keys(loadedCounts)]);
    return [...states].some((status) => (counts[status] ?? 0) !== (loadedCounts[status] ?? 0));
  }

  /** Return the node or item with an ID, or null. */
  find(id) {
    return this.nodes.get(id) ?? this.items.get(mapNodeOf(id))?.get(id) ?? null;
  }

  #groups = null;

  /** Groups of nodes by level, for graphs with more than MAX_BOXES nodes; each {key, label, members}. */
  #levelGroups() {
    if (this.#groups) return this.#groups;
    const levels = [];
    for (const [id, level] of this.levels) (levels[level] ??= []).push(id);
    const levelsPerGroup = Math.ceil(levels.length / MAX_GROUPS);
    this.#groups = [];
    for (let at = 0; at < levels.length; at += levelsPerGroup) {
      const last = Math.min(at + levelsPerGroup, levels.length) - 1;
      const label = at === last ? `Level ${at + 1}` : `Levels ${at + 1} to ${last + 1}`;
      this.#groups.push({ key: `level${SEPARATOR}${at}`, label, members: levels.slice(at, last + 1).flat() });
    }
    return this.#groups;
  }

  /** Whether any node has a group. */
  get hasGroups() {
    return this.nodes.size <= MAX_BOXES && [...this.nodes.values()].some((node) => node.group);
  }

  /** Groups of nodes with the same `group`, each {key, label, members}; a node without `group` forms its own group. */
  *#namedGroups() {
    const groups = new Map();
    for (const { node_id: id, group } of this.nodes.values()) {
      const key = group ? `group${SEPARATOR}${group}` : id;
      if (!groups.has(key)) groups.set(key, { key, label: group ?? id, members: [] });
      groups.get(key).members.push(id);
    }
    yield* groups.values();
  }

  /** Split a group into smaller groups, in the order of its members. */
  #split(group) {
    const count = Math.min(MAX_GROUPS, Math.ceil(group.members.length / MAX_MEMBERS) * 2);
    const membersPerPart = Math.ceil(group.members.length / count);
    const parts = [];
    for (let at = 0; at < group.members.length; at += membersPerPart) {
      const members = group.members.slice(at, at + membersPerPart);
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
    const node = this.nodes.has(id) ? id : mapNodeOf(id);
    if (this.nodes.size <= MAX_BOXES || !this.nodes.has(node)) return;
    let groups = this.#levelGroups();
    for (;;) {
      const group = groups.find((each) => each.members.includes(node));
      if (!this.open.has(group.key)) this.toggle(group.key, group.label);
      if (group.members.length <= MAX_MEMBERS) return;
      groups = this.#split(group);
    }
  }

  /**
   * The boxes and edges to draw.
   *
   * A box is {key, id} for a node, {key, id, mapNodeId} for an item of the node `mapNodeId`, or {key, label, members}
   * for a group. Edges are [from, to] between keys, without duplicates. `boxOf` maps a node to the key of its box.
   */
  boxes() {
    const boxes = [];
    const boxOf = new Map();
    const add = (box, ids) => {
      boxes.push(box);
      for (const id of ids) boxOf.set(id, box.key);
    };
    const addGroup = (group) => {
      if (!this.open.has(group.key)) return add(group, group.members);
      if (group.members.length > MAX_MEMBERS) return this.#split(group).forEach(addGroup);
      return group.members.forEach((id) => add({ key: id, id, within: group }, [id]));
    };
    const addNode = (id) => add({ key: id, id }, [id]);
    if (this.nodes.size > MAX_BOXES) this.#levelGroups().forEach(addGroup);
    else if (!this.isFolded) [...this.nodes.keys()].forEach(addNode);
    else
      for (const group of this.#namedGroups()) {
        if (this.nodes.has(group.key)) addNode(group.key);
        else addGroup(group);
      }
    const edges = new Map();
    for (const [from, to] of this.edges) {
      const [a, b] = [boxOf.get(from), boxOf.get(to)];
      if (a !== b) edges.set(a + SEPARATOR + SEPARATOR + b, [a, b]);
    }
    const drawnEdges = [...edges.values()];
    for (const box of [...boxes]) {
      const items = box.id !== undefined && this.open.has(itemsKey(box.id)) ? this.items.get(box.id) : undefined;
      for (const id of [...(items?.keys() ?? [])].slice(0, MAX_MEMBERS)) {
        boxes.push({ key: id, id, mapNodeId: box.id });
        drawnEdges.push([box.key, id]);
      }
    }
    return { boxes, edges: drawnEdges, boxOf };
  }
}

/** Whether a cursor in the history of a run, such as `1-145`, is after another cursor. */
function isLater(cursor, otherCursor) {
  if (!cursor || !otherCursor) return false;
  const [[run, event], [otherRun, otherEvent]] = [cursor, otherCursor].map((text) => text.match(/\d+/g).map(Number));
  return run === otherRun ? event > otherEvent : run > otherRun;
}

/** Whether a group is part of another group. */
export function isPartOf(key, groupKey) {
  return key.startsWith(groupKey + SEPARATOR);
}

/** The key of the open items of a node. */
export function itemsKey(id) {
  return `items${SEPARATOR}${id}`;
}

/** Node ID -> level. Valid plans have no cycles; nodes of a cycle would be in the first level. */
function levelsOf(ids, dependencies, dependents) {
  const levels = new Map(ids.map((id) => [id, 0]));
  const missing = new Map(ids.map((id) => [id, dependencies.get(id).length]));
  const ready = ids.filter((id) => missing.get(id) === 0);
  for (let at = 0; at < ready.length; at += 1) {
    const level = levels.get(ready[at]) + 1;
    for (const next of dependents.get(ready[at])) {
      if (level > levels.get(next)) levels.set(next, level);
      missing.set(next, missing.get(next) - 1);
      if (missing.get(next) === 0) ready.push(next);
    }
  }
  return levels;
}
