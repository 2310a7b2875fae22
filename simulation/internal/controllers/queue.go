package controllers

import (
	"cmp"
	"container/heap"
	"time"
)

// maxBackoff is the longest time between two attempts, as in the real controllers.
const maxBackoff = 1000 * time.Second

// task is work of a controller for an object.
type task struct {
	controller int // its index in Manager.controllers
	key        string
}

type dueTask struct {
	task
	due time.Time
}

// queue has the tasks that are due now or later. The zero value is ready.
type queue struct {
	due      map[task]time.Time
	failures map[task]int
	heap     taskHeap // has all of due, and tasks that were done or are due earlier now
}

// add makes a task due at a time, or earlier if it is due earlier already.
func (q *queue) add(t task, due time.Time) {
	if earlier, exists := q.due[t]; exists && !due.Before(earlier) {
		return
	}
	if q.due == nil {
		q.due, q.failures = map[task]time.Time{}, map[task]int{}
	}
	q.due[t] = due
	heap.Push(&q.heap, dueTask{t, due})
}

// first returns the first task in the order of compareTasks.
func (q *queue) first() (t dueTask, ok bool) {
	for len(q.heap) > 0 {
		t := q.heap[0]
		if due, exists := q.due[t.task]; exists && due.Equal(t.due) {
			return t, true
		}
		heap.Pop(&q.heap)
	}
	return dueTask{}, false
}

// remove removes a task before it is worked on.
func (q *queue) remove(t task) { delete(q.due, t) }

// done notes the outcome of a task, and repeats it after a failure.
func (q *queue) done(t task, now time.Time, err error) {
	if err == nil {
		delete(q.failures, t)
		return
	}
	backoff := min(5*time.Millisecond<<min(q.failures[t], 20), maxBackoff)
	q.add(t, now.Add(backoff))
	q.failures[t]++
}

// compareTasks orders tasks by time, then in the order of the controllers, then by key.
func compareTasks(a, b dueTask) int {
	return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.controller, b.controller), cmp.Compare(a.key, b.key))
}

type taskHeap []dueTask

func (h taskHeap) Len() int      { return len(h) }
func (h taskHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *taskHeap) Push(t any)   { *h = append(*h, t.(dueTask)) }
func (h taskHeap) Less(i, j int) bool {
	return compareTasks(h[i], h[j]) < 0
}

func (h *taskHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
