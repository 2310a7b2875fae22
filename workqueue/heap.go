package workqueue

import "time"

// byDue is a heap (container/heap) of waiting items, earliest first.
type byDue[K comparable] []*item[K]

func (h byDue[K]) Len() int           { return len(h) }
func (h byDue[K]) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h byDue[K]) Swap(i, j int)      { swap(h, i, j) }
func (h *byDue[K]) Push(x any)        { push((*[]*item[K])(h), x) }
func (h *byDue[K]) Pop() any          { return pop((*[]*item[K])(h)) }

// byRank is a heap of ready items in the order in which workers get them.
type byRank[K comparable] []*item[K]

func (h byRank[K]) Len() int { return len(h) }
func (h byRank[K]) Less(i, j int) bool {
	a, b := h[i].rank(), h[j].rank()
	if a.Equal(b) {
		return h[i].sequence < h[j].sequence
	}
	return a.Before(b)
}
func (h byRank[K]) Swap(i, j int) { swap(h, i, j) }
func (h *byRank[K]) Push(x any)   { push((*[]*item[K])(h), x) }
func (h *byRank[K]) Pop() any     { return pop((*[]*item[K])(h)) }

// rank is the moment by which a due item is ordered.
func (it *item[K]) rank() time.Time {
	if it.priority < PriorityNormal {
		return it.due.Add(LowPriorityPatience)
	}
	return it.due
}

func swap[K comparable](h []*item[K], i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func push[K comparable](h *[]*item[K], x any) {
	it := x.(*item[K])
	it.index = len(*h)
	*h = append(*h, it)
}

func pop[K comparable](h *[]*item[K]) any {
	last := len(*h) - 1
	it := (*h)[last]
	(*h)[last] = nil // or the array keeps the item alive
	*h = (*h)[:last]
	return it
}
