package workqueue

// list is a list of items, linked through one of item.links.
type list[K comparable] struct {
	first, last *item[K]
}

// link is an item's position in a list.
type link[K comparable] struct {
	previous, next *item[K]
}

// linkKind selects the link of an item.
type linkKind int

const (
	byAge   linkKind = iota // all ready keys
	byBand                  // the ready keys of one band
	byGroup                 // the ready keys of one group and band
	lists
)

func (l *list[K]) push(entry *item[K], via linkKind) {
	entry.links[via] = link[K]{previous: l.last}
	if l.last == nil {
		l.first = entry
	} else {
		l.last.links[via].next = entry
	}
	l.last = entry
}

func (l *list[K]) remove(entry *item[K], via linkKind) {
	place := &entry.links[via]
	if place.previous == nil {
		l.first = place.next
	} else {
		place.previous.links[via].next = place.next
	}
	if place.next == nil {
		l.last = place.previous
	} else {
		place.next.links[via].previous = place.previous
	}
	*place = link[K]{}
}

// line contains the ready keys of one group and band, the earliest first. Almost all keys become ready in the order in
// which they are added. These are in a list. Others, such as keys with a raised priority, are in a heap.
type line[K comparable] struct {
	inOrder list[K]
	others  byTime[K]
}

func (l *line[K]) empty() bool { return l.inOrder.first == nil && len(l.others) == 0 }

func (l *line[K]) push(entry *item[K]) {
	if last := l.inOrder.last; last != nil && entry.before(last) {
		l.others.push(entry)
		return
	}
	entry.index = notInHeap
	l.inOrder.push(entry, byGroup)
}

func (l *line[K]) pop() *item[K] {
	first := l.inOrder.first
	if first == nil || len(l.others) > 0 && l.others[0].before(first) {
		first = l.others[0]
	}
	l.remove(first)
	return first
}

func (l *line[K]) remove(entry *item[K]) {
	if entry.index == notInHeap {
		l.inOrder.remove(entry, byGroup)
	} else {
		l.others.remove(entry)
	}
}
