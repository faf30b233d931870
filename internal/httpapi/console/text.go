package console

import "github.com/dustin/go-humanize"

func bytesText(n uint64) string { return humanize.IBytes(n) }

func countText(n any) string {
	switch n := n.(type) {
	case int:
		return humanize.Comma(int64(n))
	case int64:
		return humanize.Comma(n)
	case uint64:
		return humanize.Comma(int64(n))
	}
	return "?"
}
