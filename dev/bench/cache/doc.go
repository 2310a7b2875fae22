// Package cache contains only a benchmark: controller-runtime's cache beside that of compat/controllerruntime. It is a
// module of its own because it needs both and the objects of dev/bench. make bench-caches runs it.
package cache
