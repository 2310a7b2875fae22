// Package interruptions records on disk which keys a controller is handling, so that the next process can read which
// ones were interrupted by the end of this one. An annotation of the object would cost two requests and an event for
// each run. The next process handles these keys last and one at a time: then the key that ends the process runs alone
// at some time, and only its count grows.
package interruptions

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/evenkeel-go/evenkeel/kube"
)

// The file starts with a header: magic, and a byte that is shutdown if the keys in work need not be counted. Then it
// has slots of slotSize bytes: a byte that is inUse, the lengths of the namespace and of the name (2 bytes each), the
// checksum of both (4 bytes), and both. A page contains whole slots only.
const (
	magic      = "even keel keys 2\n"
	slotSize   = 512
	slotHeader = 9
	inUse      = 1
	shutdown   = 1
)

// File contains the keys that are being handled, and in a second file (table) the keys whose handling was interrupted.
// A process that ends in any way leaves its writes to the operating system, so nothing is synced: the files survive the
// process, not the machine.
type File struct {
	// Immutable after Open.
	file  *os.File // locked
	table string

	mu     sync.Mutex
	counts map[kube.Key]int // guarded by mu; how often the handling of a key was interrupted
	free   []*Slot          // guarded by mu; unused slots
	slots  int64            // guarded by mu; number of slots
}

// interruption is an element of the table.
type interruption struct {
	Key   tableKey `json:"key"`
	Count int      `json:"count"`
}

// tableKey is a key in the table: both parts as in a path of a URL, because JSON cannot contain any bytes.
type tableKey kube.Key

// MarshalText implements encoding.TextMarshaler.
func (k tableKey) MarshalText() ([]byte, error) {
	return []byte(url.PathEscape(k.Namespace) + "/" + url.PathEscape(k.Name)), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *tableKey) UnmarshalText(text []byte) (err error) {
	namespace, name, found := strings.Cut(string(text), "/")
	if !found {
		return fmt.Errorf("%q has no slash", text)
	}
	if k.Namespace, err = url.PathUnescape(namespace); err == nil {
		k.Name, err = url.PathUnescape(name)
	}
	return err
}

// Open opens and locks the files of a controller in dir, which must exist, and counts the keys that the last process
// was handling when it ended. Damaged content is logged and removed.
func Open(dir, controller string, logger *slog.Logger) (*File, error) {
	path := filepath.Join(dir, url.QueryEscape(controller)) // valid in file names of all systems
	file, err := os.OpenFile(path+".keys", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	f := &File{file: file, table: path + ".interrupted.json"}
	if err := lock(file); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s, which another controller or process may use: %w", file.Name(),
			err), file.Close())
	}
	if err := f.load(logger); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// load reads both files, and writes them without the keys in work.
func (f *File) load(logger *slog.Logger) error {
	content, err := os.ReadFile(f.file.Name())
	if err != nil {
		return err
	}
	damaged := func(path string, err error) {
		logger.Warn("damaged state of interrupted keys ignored", "file", path, "error", err)
	}
	f.counts, err = readTable(f.table)
	if err != nil {
		damaged(f.table, err)
	}
	keys, err := keysInWork(content)
	if err != nil {
		damaged(f.file.Name(), err)
	}
	for _, key := range keys {
		f.counts[key]++
	}
	// The table first: a process that ends in between counts these keys twice, and forgets none.
	if err := f.writeTable(); err != nil {
		return err
	}
	if err := f.file.Truncate(0); err != nil {
		return err
	}
	return f.SetShutdown(true)
}

// keysInWork returns the keys in a file. The error names what is damaged; the other keys are returned.
func keysInWork(content []byte) (keys []kube.Key, err error) {
	if len(content) == 0 {
		return nil, nil
	}
	if len(content) <= len(magic) || string(content[:len(magic)]) != magic {
		return nil, errors.New("it has no valid header")
	}
	if content[len(magic)] == shutdown {
		return nil, nil
	}
	for start := slotSize; start < len(content); start += slotSize {
		slot := content[start:min(start+slotSize, len(content))]
		if slot[0] != inUse {
			continue
		}
		key, ok := readSlot(slot)
		if !ok {
			err = fmt.Errorf("the key at offset %d is damaged", start)
			continue
		}
		keys = append(keys, key)
	}
	return keys, err
}

// readSlot returns the key in a slot.
func readSlot(slot []byte) (key kube.Key, ok bool) {
	if len(slot) < slotHeader {
		return key, false
	}
	name := slotHeader + int(binary.LittleEndian.Uint16(slot[1:]))
	end := name + int(binary.LittleEndian.Uint16(slot[3:]))
	if end > len(slot) || binary.LittleEndian.Uint32(slot[5:]) != crc32.ChecksumIEEE(slot[slotHeader:end]) {
		return key, false
	}
	return kube.Key{Namespace: string(slot[slotHeader:name]), Name: string(slot[name:end])}, true
}

// readTable returns the counts in a table. They are not nil, also with an error.
func readTable(path string) (map[kube.Key]int, error) {
	counts := map[kube.Key]int{}
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return counts, nil
	}
	var table []interruption
	if err := cmp.Or(err, json.Unmarshal(content, &table)); err != nil {
		return counts, err
	}
	for _, entry := range table {
		counts[kube.Key(entry.Key)] = max(entry.Count, 1)
	}
	return counts, nil
}

// writeTable writes the counts, or removes the table if there are none. mu must be held, except in Open.
func (f *File) writeTable() error {
	if len(f.counts) == 0 {
		if err := os.Remove(f.table); !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	table := make([]interruption, 0, len(f.counts))
	for key, count := range f.counts {
		table = append(table, interruption{tableKey(key), count})
	}
	slices.SortFunc(table, func(a, b interruption) int {
		return cmp.Or(strings.Compare(a.Key.Namespace, b.Key.Namespace), strings.Compare(a.Key.Name, b.Key.Name))
	})
	content, err := json.Marshal(table)
	if err != nil {
		return err
	}
	if err := os.WriteFile(f.table+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(f.table+".new", f.table)
}

// SetShutdown records whether the process is shutting down, or does not work for another reason: then the keys in work
// are not counted if it ends.
func (f *File) SetShutdown(on bool) error {
	header := append([]byte(magic), 0)
	if on {
		header[len(magic)] = shutdown
	}
	_, err := f.file.WriteAt(header, 0)
	return err
}

// Counts returns how often the handling of each key was interrupted.
func (f *File) Counts() map[kube.Key]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.counts)
}

// Remove removes a key from the interrupted ones.
func (f *File) Remove(key kube.Key) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.counts, key)
	return f.writeTable()
}

// Slot is the place of one key in the file.
type Slot struct {
	offset int64
	buffer [slotSize]byte
}

// Begin records that key is in work, until End is called with the slot. A key that is too long is not recorded: no
// object has such a name, but a key of a controller without a primary kind may be so long.
func (f *File) Begin(key kube.Key) (*Slot, error) {
	slot := f.unusedSlot()
	if slotHeader+len(key.Namespace)+len(key.Name) > slotSize {
		return slot, nil
	}
	content := append(append(slot.buffer[:slotHeader], key.Namespace...), key.Name...)
	content[0] = inUse
	binary.LittleEndian.PutUint16(content[1:], uint16(len(key.Namespace))) //nolint:gosec // it is below slotSize
	binary.LittleEndian.PutUint16(content[3:], uint16(len(key.Name)))      //nolint:gosec // it is below slotSize
	binary.LittleEndian.PutUint32(content[5:], crc32.ChecksumIEEE(content[slotHeader:]))
	_, err := f.file.WriteAt(content, slot.offset)
	return slot, err
}

func (f *File) unusedSlot() *Slot {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := len(f.free) - 1
	if last < 0 {
		f.slots++ // the first place is the header's
		return &Slot{offset: f.slots * slotSize}
	}
	slot := f.free[last]
	f.free = f.free[:last]
	return slot
}

// End records that the key in slot is not in work any more.
func (f *File) End(slot *Slot) error {
	slot.buffer[0] = 0
	_, err := f.file.WriteAt(slot.buffer[:1], slot.offset)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.free = append(f.free, slot)
	return err
}

// Close unlocks and closes the files.
func (f *File) Close() error { return errors.Join(unlock(f.file), f.file.Close()) }
