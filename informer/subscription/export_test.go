package subscription

import "github.com/evenkeel-go/evenkeel/informer"

func (s *Subscription[T]) Informer() *informer.Informer[T] { return s.informer }
