package informer

import "github.com/evenkeel-go/evenkeel/kube"

func (i *Informer[T]) Has(key kube.Key) (bool, error) { return i.has(key) }
