// Package operators has at least one place for each operator, and the places that are left out.
package operators

import (
	"fmt"
	"log/slog"
	"sync"
	"time"
)

type state int

const (
	idle state = iota + 1
	busy
)

const timeout = 30 * time.Second

type box struct {
	mu     sync.Mutex
	size   int
	open   bool
	state  state
	logger *slog.Logger
}

func (b *box) String() string { return fmt.Sprint(b.size + 1) }

func (b *box) put(n int, last bool) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n <= 0 && last {
		return b.size, fmt.Errorf("%d is not positive", n)
	}
	if !b.open {
		b.logger.Info("opened", "size", b.size+1)
		b.open = last
	}
	b.size += n
	b.state = busy
	_ = make([]int, 0, 8)
	return b.size, nil
}

func largest(numbers []int) (most int) {
	for _, n := range numbers {
		if n == 7 {
			continue
		}
		if n > most {
			most = n
		}
		switch {
		case n > 100:
			return most - 1
		default:
			break
		}
	}
	return most
}

func (b *box) close() {
	if b.size != 0 {
		fmt.Println("not empty")
		return
	}
	b.open = false
}
