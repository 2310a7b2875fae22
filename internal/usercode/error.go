package usercode

import (
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"
)

const (
	// MaxText is the maximum length of an error text that is stored or logged, in bytes.
	MaxText = 2048
	// maxDepth is the maximum depth of errors that wrap each other.
	maxDepth = 1000
	// maxErrors is the maximum number of errors in one error tree.
	maxErrors = 100_000
)

// Error returns an error that is safe to use: its methods return, and its text has at most MaxText bytes. Most errors
// are returned unchanged. If only the text of err is too long, or its Error method panics, the result wraps err. If err
// wraps itself, or its Unwrap method panics, the result describes err and wraps nothing. Error returns nil for nil.
func Error(err error) error {
	if err == nil {
		return nil
	}
	if !Sound(err) {
		return &unsoundError{describe(err)}
	}
	text, whole := read(err)
	if whole {
		return err
	}
	return &shortError{text, err}
}

// Text returns the text of err, shortened to MaxText bytes, or a description of an err without a readable text. It
// returns "" for nil.
func Text(err error) string {
	switch {
	case err == nil:
		return ""
	case !Sound(err):
		return describe(err)
	}
	text, _ := read(err)
	return text
}

// Sound reports whether the tree of err can be walked: no error wraps itself, and no Unwrap method panics. For an error
// that is not sound, errors.Is and errors.As panic or do not return.
func Sound(err error) (sound bool) {
	defer func() {
		if recover() != nil {
			sound = false
		}
	}()
	left := maxErrors
	return walk(err, maxDepth, &left)
}

// walk reports whether err wraps at most depth errors one inside the other, and at most left in all.
func walk(err error, depth int, left *int) bool {
	for ; err != nil; depth-- {
		if *left--; depth == 0 || *left < 0 {
			return false
		}
		switch e := err.(type) { //nolint:errorlint // this walks the tree itself
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			for _, inner := range e.Unwrap() {
				if !walk(inner, depth-1, left) {
					return false
				}
			}
			return true
		default:
			return true
		}
	}
	return true
}

// read returns the text of a sound error, shortened; whole is true if it is not shortened.
func read(err error) (text string, whole bool) {
	defer func() {
		if value := recover(); value != nil {
			text, whole = describePanic(err, value), false
		}
	}()
	full := err.Error()
	text = Shorten(full)
	return text, len(text) == len(full)
}

// describePanic returns a text for an error with an Error method that panicked.
func describePanic(err error, value any) string {
	if v := reflect.ValueOf(err); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Sprintf("a nil %T was returned as an error: return nil instead", err)
	}
	return Shorten(fmt.Sprintf("an error of type %T, whose Error method panicked: %v", err, value))
}

// describe returns a text for an error that is not sound. It does not call the Error method, which may not return if
// the error wraps itself.
func describe(err error) string {
	if v := reflect.ValueOf(err); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Sprintf("a nil %T was returned as an error: return nil instead", err)
	}
	return fmt.Sprintf("an error of type %T that wraps itself, or more than %d others, or cannot be unwrapped", err,
		maxDepth)
}

// Shorten returns text, shortened to MaxText bytes. It removes the middle, because the end of an error's text is often
// the reason. The result does not share memory with text.
func Shorten(text string) string { return ShortenTo(text, MaxText) }

// ShortenTo is like Shorten with another limit in bytes, at least 64.
func ShortenTo(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	gap := fmt.Sprintf(" ... (%d bytes in all) ... ", len(text))
	begin := (limit - len(gap)) * 2 / 3
	end := len(text) - (limit - len(gap) - begin)
	for begin > 0 && !utf8.RuneStart(text[begin]) {
		begin--
	}
	for end < len(text) && !utf8.RuneStart(text[end]) {
		end++
	}
	return strings.Clone(text[:begin]) + gap + text[end:]
}

// unsoundError stands for an error that must not be walked.
type unsoundError struct{ text string }

// Error implements error.
func (e *unsoundError) Error() string { return e.text }

// shortError is an error with another text.
type shortError struct {
	text string
	err  error
}

// Error implements error.
func (e *shortError) Error() string { return e.text }

// Unwrap returns the original error, for errors.Is and errors.As.
func (e *shortError) Unwrap() error { return e.err }
