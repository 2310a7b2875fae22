package store

import (
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// BenchmarkCompress compares compression algorithms for records: bytes and time per object.
func BenchmarkCompress(b *testing.B) {
	all := newCluster(b, 1, 40).pods(2000)
	s := newStore(Config{}, newHashes(), 1)
	put(b, s, all...)
	content := s.training.current.s2.Bytes()
	cut := s.samples(&scratch{}, s.training.random, 500)

	raw, err := zstd.NewWriter(nil, zstd.WithEncoderDictRaw(1, content), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false), zstd.WithWindowSize(128<<10))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = raw.Close() })
	fastest, err := zstd.NewWriter(nil, zstd.WithEncoderDictRaw(1, content), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false), zstd.WithWindowSize(128<<10), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = fastest.Close() })
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderDictRaw(1, content), zstd.WithDecoderConcurrency(1))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(decoder.Close)
	dictionary := s2.NewDict(content)
	for _, c := range []struct {
		name   string
		encode func(dst, src []byte) []byte
		decode func(dst, src []byte) ([]byte, error)
	}{
		{"s2", dictionary.Encode, dictionary.Decode},
		{"s2better", dictionary.EncodeBetter, dictionary.Decode},
		{"s2best", dictionary.EncodeBest, dictionary.Decode},
		{"zstd", func(dst, src []byte) []byte { return raw.EncodeAll(src, dst[:0]) }, func(dst, src []byte) ([]byte, error) { return decoder.DecodeAll(src, dst[:0]) }},
		{"zstdfastest", func(dst, src []byte) []byte { return fastest.EncodeAll(src, dst[:0]) }, func(dst, src []byte) ([]byte, error) { return decoder.DecodeAll(src, dst[:0]) }},
	} {
		buffer := make([]byte, 64<<10)
		packed := make([][]byte, len(cut))
		total := 0
		for i, o := range cut {
			packed[i] = append([]byte(nil), c.encode(buffer, o)...)
			total += len(packed[i])
		}
		b.Run(c.name+"/encode", func(b *testing.B) {
			i := 0
			for b.Loop() {
				c.encode(buffer, cut[i%len(cut)])
				i++
			}
			b.ReportMetric(float64(total)/float64(len(cut)), "B/object")
		})
		b.Run(c.name+"/decode", func(b *testing.B) {
			i := 0
			for b.Loop() {
				if _, err := c.decode(buffer, packed[i%len(cut)]); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}
