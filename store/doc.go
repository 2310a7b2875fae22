// Package store keeps the latest known state of the objects of one kind, as bytes.
package store
