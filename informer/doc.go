// Package informer keeps an up-to-date view of objects.
//
// A Retriever lists and watches objects of one type; it is the only way in which
// objects come in. An Informer runs client-go's Reflector over a Retriever into a
// store, notices what really changed, and tells its subscribers.
package informer
