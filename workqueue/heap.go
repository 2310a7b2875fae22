package workqueue

// byTime is a heap of items, the earliest first: by item.at, and then by item.sequence. It
// keeps item.index, so that any item can be removed. (container/heap would do the same through
// an interface, which takes twice the time.)
type byTime[K comparable] []*item[K]

// notInHeap is the index of an item in no heap, where that matters.
const notInHeap = -1

func (it *item[K]) before(other *item[K]) bool {
	return it.at < other.at || it.at == other.at && it.sequence < other.sequence
}

func (h *byTime[K]) push(it *item[K]) {
	*h = append(*h, it)
	h.up(len(*h)-1, it)
}

func (h *byTime[K]) pop() *item[K] {
	first := (*h)[0]
	h.remove(first)
	return first
}

func (h *byTime[K]) remove(it *item[K]) {
	i, end := it.index, len(*h)-1
	last := (*h)[end]
	(*h)[end] = nil // or the array keeps the item alive
	*h = (*h)[:end]
	if i == end {
		return
	}
	// The last one fills the gap, and goes from there to where it belongs.
	if i > 0 && last.before((*h)[(i-1)/2]) {
		h.up(i, last)
	} else {
		h.down(i, last)
	}
}

// up puts it at i, or as far above as it comes before what is there.
func (h byTime[K]) up(i int, it *item[K]) {
	for i > 0 {
		parent := (i - 1) / 2
		if !it.before(h[parent]) {
			break
		}
		h[i] = h[parent]
		h[i].index = i
		i = parent
	}
	h[i] = it
	it.index = i
}

// down puts it at i, or as far below as something there comes before it.
func (h byTime[K]) down(i int, it *item[K]) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if other := child + 1; other < len(h) && h[other].before(h[child]) {
			child = other
		}
		if !h[child].before(it) {
			break
		}
		h[i] = h[child]
		h[i].index = i
		i = child
	}
	h[i] = it
	it.index = i
}
