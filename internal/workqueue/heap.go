package workqueue

// byTime is a heap of items, ordered by item.at and then by item.sequence. It maintains item.index, so that any item
// can be removed. (container/heap needs twice the time, because of its interface.)
type byTime[K comparable, C any] []*item[K, C]

// notInHeap is the index of an item that is not in a heap.
const notInHeap = -1

func (entry *item[K, C]) before(other *item[K, C]) bool {
	return entry.at < other.at || entry.at == other.at && entry.sequence < other.sequence
}

func (h *byTime[K, C]) push(entry *item[K, C]) {
	*h = append(*h, entry)
	h.up(len(*h)-1, entry)
}

func (h *byTime[K, C]) pop() *item[K, C] {
	first := (*h)[0]
	h.remove(first)
	return first
}

func (h *byTime[K, C]) remove(entry *item[K, C]) {
	i, end := entry.index, len(*h)-1
	last := (*h)[end]
	(*h)[end] = nil // otherwise the array keeps the item alive
	*h = (*h)[:end]
	if i == end {
		return
	}
	// The last item fills the gap, and is moved from there to its position.
	if i > 0 && last.before((*h)[(i-1)/2]) {
		h.up(i, last)
	} else {
		h.down(i, last)
	}
}

// up puts the item at i, or as far above as it belongs.
func (h byTime[K, C]) up(i int, entry *item[K, C]) {
	for i > 0 {
		parent := (i - 1) / 2
		if !entry.before(h[parent]) {
			break
		}
		h[i] = h[parent]
		h[i].index = i
		i = parent
	}
	h[i] = entry
	entry.index = i
}

// down puts the item at i, or as far below as it belongs.
func (h byTime[K, C]) down(i int, entry *item[K, C]) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if other := child + 1; other < len(h) && h[other].before(h[child]) {
			child = other
		}
		if !h[child].before(entry) {
			break
		}
		h[i] = h[child]
		h[i].index = i
		i = child
	}
	h[i] = entry
	entry.index = i
}
