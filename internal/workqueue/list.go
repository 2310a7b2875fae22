package workqueue

// list is a list of items, linked through one of item.links.
type list[K comparable, C any] struct {
	first, last *item[K, C]
}

// link is an item's position in a list.
type link[K comparable, C any] struct {
	previous, next *item[K, C]
}

// linkKind selects the link of an item.
type linkKind int

const (
	byAge   linkKind = iota // all ready keys
	byBand                  // the ready keys of one band
	byGroup                 // the ready keys of one group and band
	lists
)

func (l *list[K, C]) push(entry *item[K, C], via linkKind) {
	entry.links[via] = link[K, C]{previous: l.last}
	if l.last == nil {
		l.first = entry
	} else {
		l.last.links[via].next = entry
	}
	l.last = entry
}

func (l *list[K, C]) remove(entry *item[K, C], via linkKind) {
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
	*place = link[K, C]{}
}

// line contains the ready keys of one group and band, the earliest first. Almost all keys become ready in the order in
// which they are added. These are in a list. Others, such as keys with a raised priority, are in a heap.
type line[K comparable, C any] struct {
	inOrder    list[K, C]
	outOfOrder byTime[K, C]
}

func (l *line[K, C]) empty() bool { return l.inOrder.first == nil && len(l.outOfOrder) == 0 }

func (l *line[K, C]) push(entry *item[K, C]) {
	if last := l.inOrder.last; last != nil && entry.before(last) {
		l.outOfOrder.push(entry)
		return
	}
	entry.index = notInHeap
	l.inOrder.push(entry, byGroup)
}

func (l *line[K, C]) pop() *item[K, C] {
	first := l.inOrder.first
	if first == nil || len(l.outOfOrder) > 0 && l.outOfOrder[0].before(first) {
		first = l.outOfOrder[0]
	}
	l.remove(first)
	return first
}

func (l *line[K, C]) remove(entry *item[K, C]) {
	if entry.index == notInHeap {
		l.inOrder.remove(entry, byGroup)
	} else {
		l.outOfOrder.remove(entry)
	}
}
