"""Number of words of a text that there are of each length, letters counted: records are strings."""

from operator import add

from pyspark import SparkContext

sc = SparkContext.getOrCreate()
text = ["the quick brown fox jumps over the lazy dog", "pack my box with five dozen liquor jugs"] * 200
words = sc.parallelize(text, 4).flatMap(lambda line: line.split()).cache()
counts = {}
for letter in "aeiou":
    counts[letter] = words.map(lambda word: word.count(letter)).reduce(add)
print(counts)
