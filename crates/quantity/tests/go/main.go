// Prints what k8s.io/apimachinery makes of many quantities: the table that tests/go.rs checks ours against.
//
//	cd crates/quantity/tests/go && go mod tidy && go run . > ../go.tsv
package main

import (
	"bufio"
	"fmt"
	"math/rand"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

var suffixes = []string{"", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
	"e0", "e1", "e3", "e+6", "e-3", "E9", "E-9", "e-12", "e21", "e30", "E", "e", "K", "mi", "Kb", "ki", "e3.5", "e99999999999999999999", " ", "i"}

var numbers = []string{"", "+", "-", ".", "+.", "0", "00", "-0", "0.", ".0", "1", "-1", "+1", "1.", ".1", "1.1", "-1.1", "0.5", "-0.5", "0.0001", "12", "100",
	"999", "1000", "1001", "1023", "1024", "1025", "1500", "2047", "2048", "-1024", "1536", "1048576", "123456789", "0.000000001", "0.0000000001", "-0.0000000001",
	"0.123456789", "0.1234567891", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551616", "1.234", "1.2345678901234567890123",
	"000012.3400", "1..2", "1.2.3", "a", "1 ", " 1", "--1", "12345678901234567890123456789", "7.999999999999999999999999"}

func main() {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for _, number := range numbers {
		for _, suffix := range suffixes {
			print(out, number+suffix)
		}
	}
	random := rand.New(rand.NewSource(1))
	for i := 0; i < 2000; i++ {
		print(out, randomNumber(random)+suffixes[random.Intn(26)])
	}
}

func randomNumber(random *rand.Rand) string {
	var text strings.Builder
	text.WriteString([]string{"", "", "", "-", "+"}[random.Intn(5)])
	for i := random.Intn(17); i >= 0; i-- {
		text.WriteByte(byte('0' + random.Intn(10)))
	}
	if random.Intn(2) == 0 {
		text.WriteByte('.')
		for i := random.Intn(15); i > 0; i-- {
			text.WriteByte(byte('0' + random.Intn(10)))
		}
	}
	return text.String()
}

// One line: text, canonical form, value, milli value, exact decimal; or text and "error".
func print(out *bufio.Writer, text string) {
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		fmt.Fprintf(out, "%s\terror\n", text)
		return
	}
	number, suffix := quantity.CanonicalizeBytes(nil)
	value, milli := quantity.Value(), quantity.MilliValue()
	fmt.Fprintf(out, "%s\t%s%s\t%d\t%d\t%s\n", text, number, suffix, value, milli, quantity.AsDec().String())
}
