package workqueue

// list is a list of items, linked through one of item.links.
type list[K comparable] struct {
	first, last *item[K]
}

// link is an item's place in a list.
type link[K comparable] struct {
	previous, next *item[K]
}

// which says through which of its links an item is in a list.
type which int

const (
	byAge   which = iota // all ready keys
	byEntry              // the ready keys of one band
	inLine               // those of one group and band
	lists
)

func (l *list[K]) push(it *item[K], of which) {
	it.links[of] = link[K]{previous: l.last}
	if l.last == nil {
		l.first = it
	} else {
		l.last.links[of].next = it
	}
	l.last = it
}

func (l *list[K]) remove(it *item[K], of which) {
	place := &it.links[of]
	if place.previous == nil {
		l.first = place.next
	} else {
		place.previous.links[of].next = place.next
	}
	if place.next == nil {
		l.last = place.previous
	} else {
		place.next.links[of].previous = place.previous
	}
	*place = link[K]{}
}

// line is the ready keys of one group and band, the earliest first. Nearly all keys become due
// in the order in which they are added: these are in a list, and those that come out of that
// order, such as keys whose priority was raised, in a heap.
type line[K comparable] struct {
	inOrder list[K]
	others  byTime[K]
}

func (l *line[K]) empty() bool { return l.inOrder.first == nil && len(l.others) == 0 }

func (l *line[K]) push(it *item[K]) {
	if last := l.inOrder.last; last != nil && it.before(last) {
		l.others.push(it)
		return
	}
	it.index = notInHeap
	l.inOrder.push(it, inLine)
}

func (l *line[K]) pop() *item[K] {
	first := l.inOrder.first
	if first == nil || len(l.others) > 0 && l.others[0].before(first) {
		first = l.others[0]
	}
	l.remove(first)
	return first
}

func (l *line[K]) remove(it *item[K]) {
	if it.index == notInHeap {
		l.inOrder.remove(it, inLine)
	} else {
		l.others.remove(it)
	}
}
